"""Bytes, durations and counts as people write and read them. Binary units: 1 GiB = 1024 MiB."""

from __future__ import annotations

import re

__all__ = [
    "GIB",
    "KIB",
    "MIB",
    "byte_unit",
    "bytes_or_unknown",
    "format_bytes",
    "format_count",
    "format_duration",
    "parse_bytes",
    "parse_seconds",
]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_FACTORS: dict[str, int] = {
    "": 1,
    "b": 1,
    **{prefix: 1024 ** (power) for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}ib": 1024 ** (power) for power, prefix in enumerate("kmgt", start=1)},
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)},
}
_SECONDS: dict[str, float] = {
    **dict.fromkeys(("", "s", "sec"), 1.0),
    "ms": 1e-3,
    **dict.fromkeys(("m", "min"), 60.0),
    **dict.fromkeys(("h", "hr"), 3600.0),
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Return the bytes that ``text`` names: ``24GiB`` (or ``24G``), ``24GB`` = 24e9, ``512``.

    Raises `ValueError` that says what was expected.
    """
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(
            f"{text!r} is not a size: write it like 24GiB, 512MiB or a number of bytes"
        )
    if "." in match[1]:
        return round(float(match[1]) * factor)
    return int(match[1]) * factor


def parse_seconds(text: str) -> float:
    """Return the seconds that ``text`` names: ``60s`` (or ``60``), ``500ms``, ``5min``, ``1h``.

    Raises `ValueError` that says what was expected.
    """
    match = _SIZE.fullmatch(text)
    factor = _SECONDS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a time: write it like 60s, 500ms, 5min or 1h")
    return float(match[1]) * factor


def byte_unit(size_bytes: float) -> tuple[int, str]:
    """Return the unit (its bytes and its name) in which ``size_bytes`` reads best."""
    magnitude = abs(size_bytes)
    for factor, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if magnitude >= factor:
            return factor, name
    return 1, "B"


def format_bytes(size_bytes: float) -> str:
    """Return ``size_bytes`` with its unit and at most three decimals: ``3.113 GiB``, ``512 B``."""
    factor, name = byte_unit(size_bytes)
    value = size_bytes / factor
    decimals = {GIB: 3, MIB: 1, KIB: 1, 1: 0}[factor]
    return f"{value:,.{decimals}f} {name}"


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Return how many: ``1 step``, ``1,000 steps``; ``plural``: where it is not just an s more."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def bytes_or_unknown(size_bytes: float | None) -> str:
    """Return what `format_bytes` does, and ``not known`` for None."""
    return "not known" if size_bytes is None else format_bytes(size_bytes)


def format_duration(seconds: float) -> str:
    """Return a duration in the unit that suits it: ``850 ns``, ``29.4 ms``, ``2:05:10``."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    rounded = float(f"{seconds:.3g}")  # 999.9 us are 1 ms
    for limit, factor, name in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1, 1e3, "ms")):
        if rounded < limit:
            return f"{seconds * factor:.3g} {name}"
    if rounded < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
