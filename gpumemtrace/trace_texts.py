"""The JSON of a trace file, taken as a stranger's: every value has the type that readers count on.

A key whose value has another type, and a row of a table that does not fit, are left out and named;
the rest stays. Keys that this version does not know stay as they are. In texts, what a terminal
would obey (escape sequences, marks that turn the direction of writing) and what no encoding can
hold is shown as its code, ``\\x1b``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from gpumemtrace.units import format_count

__all__ = ["FOOTER", "RUN_RECORD", "Shape", "check_rows", "keep_shaped", "parse_object"]

Shape: TypeAlias = "type | tuple[type, ...] | dict[str, Shape] | list[Shape] | EachValue"
"""A type or several, an object by its keys, a list of equal values, or an object of such."""


class EachValue:
    """An object whose values, whatever their keys, are of one shape."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape


_INPUTS = EachValue({"shapes": [[int]]})
_MODEL: Shape = {
    "parameters": EachValue(int),
    "training_inputs": _INPUTS,
    "eval_inputs": _INPUTS,
}
RUN_RECORD: Shape = {
    "allocator": dict,
    "argv": [str],
    "clock": dict,
    "device_sample_interval_ms": int,
    "devices": [{"index": int, "name": str, "memory_bytes": int}],
    "host": str,
    "pid": int,
    "rank": int,
    "recovery": {"segment": str, "unavailable": str},
    "script": str,
    "simulated": {"gpu": str, "approximations": list},
    "stalls": {"count": int, "total_ns": int, "longest_ns": int},
    "training": {"models": [_MODEL], "optimizers": [{"settings": dict}]},
    "world_size": int,
}
FOOTER: Shape = {
    "reason": str,
    "recovered": {"events": int, "names_left_out": int},
    "totals": {
        "drain_cpu_ns": int,
        "dropped": int,
        "events": int,
        "ring_capacity": int,
        "ring_high_water": int,
    },
}

_MOST = 1 << 63  # of a number that is calculated with, up or down
_MOST_ID = 1 << 32
_MOST_SITE = 1 << 24  # the tables of sites are arrays

_OBEYED = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def parse_object(text: bytes) -> dict[str, Any]:
    """Return the JSON object that ``text`` holds; `ValueError` when it holds none."""
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"it is a {type(value).__name__}")
    # Nothing to be found in plain ASCII that escapes nothing: the usual case.
    if text.isascii() and b"\\" not in text and b"\x7f" not in text:
        return value
    cleaned: dict[str, Any] = _clean(value)
    return cleaned


def keep_shaped(value: dict[str, Any], shape: Shape) -> tuple[dict[str, Any], list[str]]:
    """Return ``value`` without what is not as ``shape`` says, and the names of what that was."""
    wrong: list[str] = []
    kept: dict[str, Any] = _kept(value, shape, "", wrong)
    return kept, wrong


def check_rows(name: str, rows: Any) -> tuple[list[list[Any]], str | None]:
    """Return the rows of a table of names that fit, and what is wrong with the others."""
    if not isinstance(rows, list):
        return [], f"{name} is a {type(rows).__name__}, not a list"
    columns = _TABLES[name]
    good = [row for row in rows if _is_row(row, columns)]
    wrong = len(rows) - len(good)
    return good, f"{name} has {format_count(wrong, 'row')} that can't be" if wrong else None


_TABLES: Mapping[str, tuple[type | int, ...]] = {
    # A number: an int from 0 up to it.
    "phases": (_MOST_ID, _MOST_ID, str),
    "strings": (_MOST_ID, str),
    "threads": (_MOST_ID, _MOST, str),
    "modules": (_MOST_ID, _MOST_ID, str),
    "codes": (_MOST_ID, str, str, _MOST_ID),
    "frames": (_MOST_ID, _MOST_ID, _MOST_ID, _MOST_ID),
    "sites": (_MOST_SITE, _MOST_ID, _MOST_ID, 256),
}


def _is_row(row: Any, columns: tuple[type | int, ...]) -> bool:
    if not isinstance(row, list) or len(row) != len(columns):
        return False
    return all(
        type(value) is str if limit is str else type(value) is int and 0 <= value < limit  # type: ignore[operator]
        for value, limit in zip(row, columns, strict=True)
    )


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _OBEYED.sub(lambda found: _code(found.group()), value)
    if isinstance(value, dict):
        return {_clean(key): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    return value


def _code(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def _kept(value: Any, shape: Shape, place: str, wrong: list[str]) -> Any:
    """Return ``value`` without what is wrong inside; None when it is wrong itself."""
    if value is None or _is_of(value, shape):
        if isinstance(shape, dict) and value is not None:
            return dict(_kept_items(value, shape, place, wrong))
        if isinstance(shape, EachValue) and value is not None:
            return dict(_kept_items(value, dict.fromkeys(value, shape.shape), place, wrong))
        if isinstance(shape, list) and value is not None:
            inner: list[str] = []
            kept = [_kept(entry, shape[0], f"{place}[{i}]", inner) for i, entry in enumerate(value)]
            wrong.extend(inner)
            # An object may lack keys; anything else that is missing makes the list another one.
            is_whole = isinstance(shape[0], dict) or not inner
            return [entry for entry in kept if entry is not None] if is_whole else None
        return value
    wrong.append(place)
    return None


def _kept_items(
    value: Mapping[str, Any], shape: Mapping[str, Shape], place: str, wrong: list[str]
) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if key not in shape or inner is None:
            yield key, inner
            continue
        kept = _kept(inner, shape[key], f"{place}.{key}" if place else key, wrong)
        if kept is not None:
            yield key, kept


def _is_of(value: Any, shape: Shape) -> bool:
    if isinstance(shape, (dict, EachValue)):
        return isinstance(value, dict)
    if isinstance(shape, list):
        return isinstance(value, list)
    if isinstance(value, bool) or not isinstance(value, shape):
        return False
    return not isinstance(value, int) or -_MOST <= value < _MOST
