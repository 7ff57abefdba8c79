"""What was trained, and how, in words: from ``run_record["training"]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["describe_training"]

_SETTINGS = ("lr", "momentum", "weight_decay")
_MOST_INPUTS = 3


def describe_training(record: Mapping[str, Any]) -> list[str]:
    """Return a phrase each for model, optimizer, precision, inputs, and how a step is made.

    Empty where the record has nothing of it (phases by hand, an imported snapshot).
    """
    training = _mapping(record.get("training"))
    models = sorted(_mappings(training.get("models")), key=lambda model: -_parameters(model))
    optimizers = _mappings(training.get("optimizers"))
    phrases = [_model(models[0]) + _others(models)] if models else []
    if optimizers:
        phrases.append(_optimizer(optimizers[0]) + _others(optimizers))
    if training.get("autocast"):
        scaler = " with GradScaler" if training.get("grad_scaler") else ""
        phrases.append(f"autocast {training['autocast']}{scaler}")
    if models:
        inputs = _mapping(models[0].get("training_inputs")) or _mapping(
            models[0].get("eval_inputs")
        )
        phrases += _inputs(inputs)
    backwards = training.get("backwards_per_step")
    if isinstance(backwards, int) and backwards > 1:
        phrases.append(f"{backwards:,} backward passes a step")
    if training.get("activation_checkpointing"):
        phrases.append("activation checkpointing")
    return phrases


def _model(model: Mapping[str, Any]) -> str:
    dtypes = " and ".join(map(str, _mapping(model.get("parameters"))))
    each = " each" if _times(model) > 1 else ""
    parameters = f"{_count(_parameters(model))} parameters{each} in {dtypes or 'no dtype'}"
    text = f"{_class(model)}, {parameters}"
    trained = model.get("trained_parameters")
    if isinstance(trained, int) and trained < _parameters(model):
        text += f" ({_count(trained)} trained)"
    return text


def _optimizer(optimizer: Mapping[str, Any]) -> str:
    settings = _mapping(optimizer.get("settings"))
    shown = [f"{name} {settings[name]:g}" for name in _SETTINGS if _is_told(settings.get(name))]
    return f"{_class(optimizer)} ({', '.join(shown)})" if shown else _class(optimizer)


def _is_told(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value != 0


def _inputs(inputs: Mapping[str, Any]) -> list[str]:
    found = []
    for name, entry in inputs.items():
        shapes = [shape for shape in _mapping(entry).get("shapes") or () if shape]
        if shapes and all(isinstance(shape, list) for shape in shapes):
            found.append(f"{name} {_shape(shapes)}")
    return found[:_MOST_INPUTS]


def _shape(shapes: list[list[int]]) -> str:
    """``4 x 128``, or ``4 x 37…128`` where that size varies."""
    if len({len(shape) for shape in shapes}) > 1:
        return f"of {len(shapes)} shapes"
    sizes = (sorted(set(sizes)) for sizes in zip(*shapes, strict=True))
    return " x ".join(f"{s[0]}…{s[-1]}" if len(s) > 1 else str(s[0]) for s in sizes)


def _others(entries: list[Mapping[str, Any]]) -> str:
    more = sum(_times(entry) for entry in entries[1:])
    return f" and {more} more" if more else ""


def _times(entry: Mapping[str, Any]) -> int:
    """How many entries of the record this one stands for."""
    count = entry.get("count")
    return count if isinstance(count, int) else 1


def _class(entry: Mapping[str, Any]) -> str:
    name = str(entry.get("class")).rpartition(".")[2]
    return f"{_times(entry)} x {name}" if _times(entry) > 1 else name


def _parameters(model: Mapping[str, Any]) -> int:
    return sum(n for n in _mapping(model.get("parameters")).values() if isinstance(n, int))


def _count(number: int) -> str:
    for unit, name in ((10**9, " B"), (10**6, " M")):
        if number >= unit:
            return f"{number / unit:.4g}{name}"
    return f"{number:,}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []
