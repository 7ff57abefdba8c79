"""What was trained, and how: ``run_record["training"]``, gathered while the program runs.

Nothing is asked of the user and nothing of the GPU. Models are the outermost modules that ran,
optimizers those that stepped. All of it is looked at once, when an optimizer steps for the first
time, except the number of backwards in a step and the shapes of what the models are given, which
are noted natively (``_core.steps_by_backwards``; `forward_watch`).

Keys:

``models``
    list of ``class, wrappers`` (DistributedDataParallel, …), ``parameters`` (dtype -> how many),
    ``trained_parameters, training_inputs, eval_inputs`` (argument -> ``dtype, shapes``, each shape
    once, sorted).
``optimizers``
    list of ``class, settings, groups, parameters, state`` (dtype -> elements).

    Of both lists equal entries are one, with ``count``, how many there were.
``autocast``
    dtype of the first autocast region on the GPU; None = there was none.
``grad_scaler``, ``activation_checkpointing``
    whether PyTorch's own was seen.
``backwards_per_step``
    the usual number; above 1 gradients are accumulated. None = no step has ended.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from gpumemtrace import _core
from gpumemtrace.capture.forward_watch import ForwardWatch
from gpumemtrace.capture.import_watch import forget, when_imported

__all__ = ["TrainingRecord"]

# As many are looked at (an optimizer for each parameter, say), of which so many kinds are told.
_MOST_MODELS = 64
_MOST_OPTIMIZERS = 256
_MOST_KINDS = 8
_MOST_SHAPES = 32
_CHECKPOINT = "torch.utils.checkpoint"
_WRAPPERS = ("_orig_mod", "module")  # torch.compile's; DistributedDataParallel's, DataParallel's


class TrainingRecord:
    """What is known so far; from construction until `stop` it learns. Never raises."""

    def __init__(self, torch: Any, watch: ForwardWatch) -> None:
        self.wrappers: list[Any] = []
        """Functions of ours that stand where torch's stood."""
        self._torch = torch
        self._watch = watch
        self._models: dict[int, tuple[weakref.ref[Any], dict[str, Any], list[str]]] = {}
        self._optimizers: list[tuple[weakref.ref[Any], dict[str, Any]]] = []
        self._autocast: str | None = None
        self._seen = {"grad_scaler": False, "activation_checkpointing": False}
        self._undo: list[Callable[[], None]] = []
        autocast = getattr(torch.amp.autocast_mode, "autocast", None)
        self._watch_first_call(autocast, "__enter__", self._see_autocast)
        self._watch_first_call(getattr(torch.amp, "GradScaler", None), "scale", self._see_scaler)
        # torch 2.6 does not import it by itself.
        when_imported(_CHECKPOINT, self._watch_checkpoint)
        self._undo.append(functools.partial(forget, _CHECKPOINT, self._watch_checkpoint))

    def stop(self) -> None:
        """Take everything back."""
        while self._undo:
            self._undo.pop()()

    def optimizer_stepped(self, optimizer: Any) -> None:
        """``optimizer.step()`` has run for the first time, or for the first with a new group."""
        with contextlib.suppress(Exception):  # somebody's own optimizer
            self._optimizers = [known for known in self._optimizers if known[0]() is not optimizer]
            if len(self._optimizers) < _MOST_OPTIMIZERS:
                found = weakref.ref(optimizer), _describe_optimizer(optimizer)
                self._optimizers.append(found)
        self._look_at_models()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values, as the top of this file says."""
        self._look_at_models()
        parts = self._parts_of_models()
        usual = Counter(_core.steps_by_backwards()).most_common(1)
        return {
            "models": _merged(
                model | self._inputs_of(number, names)
                for number, (alive, model, names) in list(self._models.items())
                if number not in parts or alive() is None
            ),
            "optimizers": _merged(optimizer for _, optimizer in self._optimizers),
            "autocast": self._autocast,
            **self._seen,
            "backwards_per_step": usual[0][0] if usual else None,
        }

    def _look_at_models(self) -> None:
        for root in self._watch.roots():
            known = self._models.get(id(root))
            is_known = known is not None and known[0]() is root
            if is_known or len(self._models) >= _MOST_MODELS:
                continue
            with contextlib.suppress(Exception):
                inner, wrappers = _unwrapped(root)
                model = _describe_model(inner, wrappers)
                self._models[id(root)] = weakref.ref(root), model, _argument_names(inner)

    def _parts_of_models(self) -> set[int]:
        """Ids of modules within one of the models: called without it, too, or by `__call__`."""
        parts: set[int] = set()
        if len(self._models) > 1:
            for reference, _, _ in list(self._models.values()):
                with contextlib.suppress(Exception):
                    if (root := reference()) is not None:
                        inner, _ = _unwrapped(root)
                        parts.update(id(part) for part in inner.modules() if part is not inner)
        return parts

    def _inputs_of(self, number: int, names: list[str]) -> dict[str, Any]:
        """What the model with this id was given: in training mode, and otherwise."""
        found: dict[str, dict[str, dict[str, Any]]] = {"training_inputs": {}, "eval_inputs": {}}
        for module, learns, argument, shape, dtype in self._watch.inputs():
            if module != number:
                continue
            inputs = found["training_inputs" if learns else "eval_inputs"]
            if isinstance(argument, int):
                argument = names[argument] if argument < len(names) else f"argument {argument}"
            shapes = inputs.setdefault(argument, {"dtype": _short(dtype), "shapes": []})["shapes"]
            if len(shapes) < _MOST_SHAPES and (sizes := list(shape)) not in shapes:
                shapes.append(sizes)
        for inputs in found.values():
            for entry in inputs.values():
                entry["shapes"].sort()
        return found

    def _see_autocast(self, region: Any, *_: Any, **__: Any) -> bool:
        if region._enabled and region.device == "cuda":
            self._autocast = _short(region.fast_dtype)
        return self._autocast is not None

    def _see_scaler(self, scaler: Any, *_: Any, **__: Any) -> bool:
        self._seen["grad_scaler"] = scaler.is_enabled()
        return self._seen["grad_scaler"]

    def _watch_checkpoint(self) -> None:
        checkpoint = sys.modules[_CHECKPOINT]
        for name, method in (("CheckpointFunction", "forward"), ("_checkpoint_hook", "__init__")):
            self._watch_first_call(getattr(checkpoint, name, None), method, self._see_checkpoint)

    def _see_checkpoint(self, *_: Any, **__: Any) -> bool:
        self._seen["activation_checkpointing"] = True
        return True

    def _watch_first_call(self, owner: Any, name: str, look: Callable[..., bool]) -> None:
        """Have ``look`` called with the arguments of ``owner.name`` until it returns True."""
        original = None if owner is None else vars(owner).get(name)
        if original is None:  # a torch that has changed: not seen
            return
        is_static = isinstance(original, staticmethod)
        function = original.__func__ if isinstance(original, staticmethod) else original

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                is_enough = look(*args, **kwargs)
            except Exception:
                is_enough = True
            if is_enough:
                undo()
            return function(*args, **kwargs)

        ours = staticmethod(wrapper) if is_static else wrapper

        def undo() -> None:
            if vars(owner).get(name) is ours:
                setattr(owner, name, original)

        setattr(owner, name, ours)
        self.wrappers.append(wrapper)
        self._undo.append(undo)


def _merged(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first kinds of entries, each once, with ``count`` if there were several."""
    found: list[dict[str, Any]] = []
    counts: list[int] = []
    for entry in entries:
        if entry in found:
            counts[found.index(entry)] += 1
        else:
            found.append(entry)
            counts.append(1)
    return [
        entry | ({"count": count} if count > 1 else {})
        for entry, count in zip(found[:_MOST_KINDS], counts[:_MOST_KINDS], strict=True)
    ]


def _describe_model(model: Any, wrappers: list[str]) -> dict[str, Any]:
    parameters = list(model.parameters())
    return {
        "class": _name_of(type(model)),
        "wrappers": wrappers,
        "parameters": _elements(parameters),
        "trained_parameters": sum(p.numel() for p in parameters if p.requires_grad),
    }


def _describe_optimizer(optimizer: Any) -> dict[str, Any]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = [v for p in parameters for v in dict(optimizer.state.get(p, {})).values()]
    return {
        "class": _name_of(type(optimizer)),
        "settings": {key: _plain(value) for key, value in optimizer.defaults.items()},
        "groups": len(optimizer.param_groups),
        "parameters": sum(p.numel() for p in parameters),
        "state": _elements(value for value in state if hasattr(value, "data_ptr")),
    }


def _unwrapped(module: Any) -> tuple[Any, list[str]]:
    """Return the user's own module, and the classes that are wrapped around it."""
    wrappers: list[str] = []
    while type(module).__module__.startswith("torch."):
        inner = next((module._modules[n] for n in _WRAPPERS if module._modules.get(n)), None)
        if inner is None:
            break
        wrappers.append(type(module).__name__)
        module = inner
    return module, wrappers


def _argument_names(module: Any) -> list[str]:
    try:
        return list(inspect.signature(module.forward).parameters)
    except (TypeError, ValueError):
        return []


def _elements(tensors: Iterable[Any]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for tensor in tensors:
        found[_short(tensor.dtype)] += tensor.numel()
    return dict(found)


def _plain(value: Any) -> Any:
    """A setting as JSON has it; a tensor (it may lie on the GPU) is not read."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return type(value).__name__


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _short(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
