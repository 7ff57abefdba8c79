"""Exact categories: which memory holds parameters, buffers, gradients and optimizer state.

Tags are events, so they are set when there is something new to say and never again: for an
optimizer at its first step, and when it has got another group of parameters. Gradients are tagged
at the same moment; those of later steps lie elsewhere and are known by their lifetimes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gpumemtrace import _core
from gpumemtrace.capture.modules import sites_of_tensors, watch_modules
from gpumemtrace.capture.say import say
from gpumemtrace.capture.tags import BUFFER, GRADIENT, OPTIMIZER_STATE, PARAMETER, tag_tensor

__all__ = ["OptimizerTags", "watch"]

# id of a parameter -> its name and its module's site; one too many for a dead parameter's id does
# no harm.
_names: dict[int, tuple[str, int]] = {}


def watch(model: Any, optimizer: Any = None, *, modules: bool = False) -> None:
    """Tag the memory of ``model``'s parameters and buffers with category and name.

    ``model`` is a ``torch.nn.Module``. With an ``optimizer``, its state and the gradients are
    tagged at its next step, under the same names (``layer.weight.exp_avg``). Call it once the model
    is on the GPU, and again after its parameters have been replaced. With automatic phases, what an
    optimizer holds is tagged without it; names come from the modules that have run.

    ``modules``: from now on each event carries the module that makes it (docs/who.md), of whatever
    model; the paths of this one begin at ``model``.

    Outside a recording nothing happens.
    """
    if not _core.session_active():
        return
    if modules:
        watch_modules(model)
    _tag_module(model)
    if optimizer is not None:
        _OneStep(optimizer)


class OptimizerTags:
    """Tags what an optimizer holds: for its first step, and for one with new groups."""

    def __init__(self, roots: Callable[[], list[Any]]) -> None:
        self._roots = roots
        self._named: set[int] = set()  # ids of roots

    def before_step(self, optimizer: Any) -> None:
        """Before ``optimizer.step()``: the gradients are there."""
        _quietly(self._tag_parameters, optimizer)

    def after_step(self, optimizer: Any) -> None:
        """After it: the state is there."""
        _quietly(tag_state, optimizer)

    def _tag_parameters(self, optimizer: Any) -> None:
        for root in self._roots():
            if id(root) not in self._named:
                self._named.add(id(root))
                _tag_module(root)
        tag_parameters(optimizer)


def tag_parameters(optimizer: Any) -> None:
    """Tag the optimizer's parameters (those that have no name yet) and their gradients."""
    for number, parameter in enumerate(_parameters(optimizer)):
        if id(parameter) not in _names:
            _names[id(parameter)] = f"parameter {number}", 0
            tag_tensor(parameter, f"parameter {number}", PARAMETER)
        if parameter.grad is not None:
            name, site = _names[id(parameter)]
            tag_tensor(parameter.grad, f"{name}.grad", GRADIENT, site)


def tag_state(optimizer: Any) -> None:
    """Tag the tensors in the optimizer's state."""
    for number, parameter in enumerate(_parameters(optimizer)):
        name, site = _names.get(id(parameter), (f"parameter {number}", 0))
        state = optimizer.state.get(parameter)
        if not isinstance(state, dict):
            continue
        for key, value in state.items():
            for tensor, suffix in _tensors(value):
                tag_tensor(tensor, f"{name}.{key}{suffix}", OPTIMIZER_STATE, site)


def forget_names() -> None:
    """A session ends: names belong to its file."""
    _names.clear()


class _OneStep:
    """Tags at the optimizer's next step, then takes itself out."""

    def __init__(self, optimizer: Any) -> None:
        self._handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        ]

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        _quietly(tag_parameters, optimizer)

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        _quietly(tag_state, optimizer)
        for handle in self._handles:
            handle.remove()


def _tag_module(module: Any) -> None:
    sites = sites_of_tensors(module)
    for name, parameter in module.named_parameters():
        site = sites.get(id(parameter), 0)
        _names[id(parameter)] = _plain(name), site
        tag_tensor(parameter, _plain(name), PARAMETER, site)
    for name, buffer in module.named_buffers():
        tag_tensor(buffer, _plain(name), BUFFER, sites.get(id(buffer), 0))


def _plain(name: str) -> str:
    """Return the name as the model's author wrote it: without what wrappers put before it."""
    name = name.replace("_orig_mod.", "").replace("_fsdp_wrapped_module.", "")
    return name.replace("_checkpoint_wrapped_module.", "").removeprefix("module.")


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _tensors(value: Any) -> Iterator[tuple[Any, str]]:
    """Yield tensors in a value of optimizer state: itself, or in lists and dicts (LBFGS)."""
    if hasattr(value, "data_ptr"):
        yield value, ""
    elif isinstance(value, dict):
        for key, item in value.items():
            for tensor, suffix in _tensors(item):
                yield tensor, f".{key}{suffix}"
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            for tensor, suffix in _tensors(item):
                yield tensor, f".{number}{suffix}"


def _quietly(function: Callable[[Any], None], optimizer: Any) -> None:
    """Tags are a nicety: an unusual optimizer must not fail because of them."""
    try:
        function(optimizer)
    except Exception as error:
        say(f"could not tag the memory of {type(optimizer).__name__}: {error}")
