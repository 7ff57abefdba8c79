"""Who makes an event: the module whose forward runs, the optimizer's group, the compiled function.

The native part (``csrc/torch/module_calls.h``) notes which module Python calls, and hands each
event the number of that module's path; in a backward, of the module that made the autograd node.
Here the paths are found: at the first call of a module that has none yet.

A module's path is the one that ``named_modules()`` of its outermost module gives, without wrappers:
`torch.compile`, DDP, FSDP and activation checkpointing wrap a module under the name that it has
without them. The outermost module goes by the name of its class; a second one of that class that
lives at the same time is ``Net#2``.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from gpumemtrace import _core
from gpumemtrace.capture.import_watch import forget, when_imported
from gpumemtrace.capture.module_types import watch_module_types
from gpumemtrace.capture.say import say

__all__ = ["module_watch_step", "sites_of_tensors", "stop_module_watch", "watch_modules"]

# Under which name torch's wrappers hold what they wrap.
_WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module")
# Modules that no outermost one holds are looked for in all of them so many times; a script that
# makes new ones all the time must not pay for it.
_MOST_SEARCHES = 32


_current: ModuleWatch | None = None


def watch_modules(model: Any = None) -> None:
    """Have events carry the module that makes them, from now on; ``model`` is an outermost one.

    A session records. Never raises: a torch that has changed is traced without its modules.
    """
    global _current
    try:
        if _current is None:
            watch = ModuleWatch(sys.modules["torch"])
            watch.start()
            _current = watch
        if model is not None:
            _current.add(model)
    except Exception as error:
        say(f"modules are not recorded: {type(error).__name__}: {error}")


def sites_of_tensors(model: Any) -> dict[int, int]:
    """Return the site of the module that holds it, by the id of each parameter and buffer.

    Empty unless modules are watched and ``model`` is known as an outermost one.
    """
    return {} if _current is None else _current.sites_of_tensors(model)


def module_watch_step() -> None:
    """A step begins: put back what somebody took out, by assigning to ``Module.__call__``."""
    if _current is not None:
        _current.step_began()


def stop_module_watch() -> None:
    """Leave nothing behind in torch."""
    global _current
    if _current is not None:
        _current.stop()
        _current = None


class ModuleWatch:
    """Watches modules, optimizers and compiled functions from `start` until `stop`.

    ``torch`` is imported and the hook loaded. Nothing here raises into the user's calls.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._hook: Any = sys.modules["gpumemtrace._torch_hook"]
        self._names = _RootNames(self._hook)
        self._roots: dict[int, weakref.ref[Any]] = {}
        self._searches = 0
        self._stepping: dict[
            int, list[tuple[Any, int]]
        ] = {}  # by thread: optimizer, what was before
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin to watch."""
        # Ours goes on top of theirs: first come, last to leave.
        self._undo.append(watch_module_types(self._torch, self._hook.watch_type))
        self._hook.start_modules(self._torch.nn.Module, self._give_sites)
        self._undo.append(self._hook.stop_modules)
        optimizers = sys.modules["torch.optim.optimizer"]
        for handle in (
            optimizers.register_optimizer_step_pre_hook(self._before_step),
            optimizers.register_optimizer_step_post_hook(self._after_step),
        ):
            self._undo.append(handle.remove)
        name, callback = "torch._dynamo.eval_frame", self._watch_compiled_functions
        when_imported(name, callback)
        self._undo.append(functools.partial(forget, name, callback))

    def stop(self) -> None:
        """Take everything back."""
        while self._undo:
            self._undo.pop()()

    def step_began(self) -> None:
        """See `module_watch_step`."""
        _core.look_at_module_types()

    def add(self, model: Any) -> None:
        """Give ``model`` and the modules in it their paths now: it is an outermost one."""
        self._roots[id(model)] = weakref.ref(model)
        for module, path in _tree(model):
            self._hook.set_site(module, self._site_of(model, path))

    def _site_of(self, model: Any, path: str) -> int:
        """Return the site of the module at ``path`` in an outermost one."""
        root, site = self._names.of(_unwrapped(model))
        return int(self._hook.define_module_site(root, path)[1]) if path else site

    def sites_of_tensors(self, model: Any) -> dict[int, int]:
        """See the function of that name."""
        roots = [root for reference in self._roots.values() if (root := reference()) is not None]
        if not any(_unwrapped(root) is _unwrapped(model) for root in roots):
            return {}
        sites: dict[int, int] = {}
        for module, path in _tree(model):
            site = self._site_of(model, path)
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                sites.setdefault(id(tensor), site)
        return sites

    # Called by the native part, for a module that has no site.
    def _give_sites(self, module: Any, is_outermost: bool) -> None:
        if not is_outermost and self._searches < _MOST_SEARCHES:
            for reference in list(self._roots.values()):
                root = reference()
                if root is not None and any(m is module for m, _ in _tree(root)):
                    self.add(root)
                    return
            self._searches += 1
        graph = sys.modules.get("torch.fx.graph_module")
        if not is_outermost and graph is not None and isinstance(module, graph.GraphModule):
            self._hook.set_site(module, 0)  # what torch.compile made of somebody's code
        elif is_outermost and _has_any(module):
            self.add(module)
        else:
            self._hook.set_site(module, self._names.of(_unwrapped(module))[1])

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._torch.compiler.is_dynamo_compiling():
            return
        try:
            sites, whole = self._group_sites(optimizer)
            stepping = self._stepping.setdefault(threading.get_ident(), [])
            for place, (other, before) in enumerate(stepping):
                if other is optimizer:  # a step that raised
                    del stepping[place:]
                    self._hook.begin_site(before)
                    break
            if len(sites) > 1:
                self._watch_groups(optimizer, sites)
            before = self._hook.begin_site(sites[0] if len(sites) == 1 else whole)
            stepping.append((optimizer, before))
        except Exception as error:
            say(f"no sites of {type(optimizer).__name__}: {error}")

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        stepping = self._stepping.get(threading.get_ident())
        if not stepping or stepping[-1][0] is not optimizer:
            return
        _, before = stepping.pop()
        self._hook.begin_site(before)
        vars(optimizer).pop("_init_group", None)

    def _group_sites(self, optimizer: Any) -> tuple[list[int], int]:
        """Return the sites of its groups, and one for all that belongs to none of them."""
        name, (_, whole) = self._names.name(optimizer), self._names.of(optimizer)
        groups = range(len(optimizer.param_groups))
        define = self._hook.define_module_site
        return [define(0, f"{name}.param_groups[{i}]")[1] for i in groups], whole

    def _watch_groups(self, optimizer: Any, sites: list[int]) -> None:
        """Notice when it comes to a group, for which torch's optimizers call ``_init_group``."""
        if "_init_group" in vars(optimizer):
            return
        original = getattr(optimizer, "_init_group", None)
        if original is None:
            return
        site_of = {id(g): site for g, site in zip(optimizer.param_groups, sites, strict=True)}
        begin_site = self._hook.begin_site

        def init_group(group: Any, *args: Any, **kwargs: Any) -> Any:
            if (site := site_of.get(id(group))) is not None:
                begin_site(site)
            return original(group, *args, **kwargs)

        optimizer._init_group = init_group

    def _watch_compiled_functions(self) -> None:
        # Not torch._dynamo.eval_frame: torch._dynamo is still being imported.
        context = sys.modules["torch._dynamo.eval_frame"].OptimizeContext
        original, own = context.__call__, "__call__" in vars(context)
        watch = self

        @functools.wraps(original)
        def call(self: Any, function: Any) -> Any:
            # Of a module of torch.nn's own a function is compiled that is wrapped around it.
            bound = getattr(function, "__self__", getattr(function, "__wrapped__", function))
            if not isinstance(bound, watch._torch.nn.Module):  # a module is seen when it is called
                name = getattr(function, "__name__", type(function).__name__)
                self.enter_exit_hooks.append(_Region(watch._hook, f"{name} (compiled)"))
            return original(self, function)

        context.__call__ = call

        def undo() -> None:
            if context.__call__ is call:
                if own:
                    context.__call__ = original
                else:
                    del context.__call__

        self._undo.append(undo)


class _Region:
    """The enter hook of a compiled function: called at entry, returns what to call at exit."""

    def __init__(self, hook: Any, name: str) -> None:
        self._hook = hook
        self._name = name

    def __call__(self) -> Callable[[], None]:
        if not self._hook.modules_are_watched():
            return _nothing
        _, site = self._hook.define_module_site(0, self._name)
        before = self._hook.begin_site(site)
        return lambda: self._leave(before)

    def _leave(self, before: int) -> None:
        self._hook.begin_site(before if self._hook.modules_are_watched() else 0)


def _nothing() -> None:
    pass


class _RootNames:
    """Names of outermost modules and optimizers: their class, numbered where it takes that."""

    def __init__(self, hook: Any) -> None:
        self._define = hook.define_module_site
        self._owners: dict[str, weakref.ref[Any]] = {}

    def of(self, owner: Any) -> tuple[int, int]:
        """Return the number of its path, and its site."""
        found: tuple[int, int] = self._define(0, self.name(owner))
        return found

    def name(self, owner: Any) -> str:
        """Return the same name each time; a name is free again when its owner is gone."""
        name = wanted = _class_name(type(owner))
        number = 1
        # Losses and activations are all alike.
        while hasattr(owner, "param_groups") or _has_any(owner):
            known = self._owners.get(name)
            holder = None if known is None else known()
            if holder is owner:
                break
            if holder is None:
                self._owners[name] = weakref.ref(owner)
                break
            number += 1
            name = f"{wanted}#{number}"
        return name


def _class_name(kind: type) -> str:
    """Return the name that the user knows: FSDP2 puts a class of its own before a module's."""
    for base in kind.__mro__:
        if not base.__module__.startswith("torch.distributed."):
            return base.__name__
    return kind.__name__


def _has_any(module: Any) -> bool:
    """Whether it has parameters or modules of its own."""
    return bool(module._parameters or module._modules)


def _unwrapped(module: Any) -> Any:
    while (inner := _wrapped(module)) is not None:
        module = inner
    return module


def _wrapped(module: Any) -> Any:
    """Return what torch's own wrapper ``module`` wraps; None if it is none."""
    if not type(module).__module__.startswith("torch."):
        return None
    found = (module._modules.get(name) for name in _WRAPPED)
    return next((inner for inner in found if inner is not None), None)


def _tree(root: Any) -> Iterator[tuple[Any, str]]:
    """Yield each module once, outer ones first, with its path in ``root``; wrappers under the same
    path as what they wrap.
    """
    seen: set[int] = set()
    waiting: list[tuple[Any, str]] = [(root, "")]
    while waiting:
        module, path = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        yield module, path
        if (inner := _wrapped(module)) is not None:
            waiting.append((inner, path))
        else:
            children = list(module._modules.items())
            waiting += [
                (child, f"{path}.{name}" if path else name) for name, child in children[::-1]
            ]
