"""Colours made readable: mixed with black or white until they stand out from their ground.

A line or a text is thin; WCAG 2.2 asks of graphics that they stand out by 3:1 (criterion 1.4.11).
"""

from __future__ import annotations

__all__ = ["contrast", "is_light", "mix", "readable"]

_LEAST_CONTRAST = 3.0


def readable(color: str, *, on: str) -> str:
    """Return ``color``, mixed with black or white only as far as it has to be seen on ``on``."""
    toward = "#000000" if is_light(on) else "#ffffff"
    for part in range(0, 101, 5):
        mixed = mix(color, toward, part / 100)
        if contrast(mixed, on) >= _LEAST_CONTRAST:
            return mixed
    raise ValueError(f"nothing can be read on {on}")


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG defines it, 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mix(color: str, other: str, share: float) -> str:
    """Return ``color`` with so much of ``other`` in it, each written ``#rrggbb``."""
    pairs = zip(_rgb(color), _rgb(other), strict=True)
    return "#{:02x}{:02x}{:02x}".format(*(round(c + (t - c) * share) for c, t in pairs))


def is_light(color: str) -> bool:
    """Whether black shows on it better than white."""
    return contrast(color, "#000000") > contrast(color, "#ffffff")


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def _luminance(color: str) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in _rgb(color))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
