"""The colours of the report: those of the figures, made readable on a light and a dark page.

A band or a bar keeps the colour of the figures; a line is thin, so it is mixed with black or white
until it stands out from the page by 3:1, as WCAG 2.2 asks of graphics (criterion 1.4.11).
"""

from __future__ import annotations

from collections.abc import Mapping

from gpumemtrace.plot.contrast import contrast, readable
from gpumemtrace.plot.style import LINE_STYLES

__all__ = ["BACKGROUNDS", "LINES", "contrast", "line_colors", "readable", "themed"]

# Of the surface that charts lie on, as in static/page.css.
BACKGROUNDS = {"light": "#ffffff", "dark": "#1b1e24"}

# The five lines, highest first; dashes tell them apart without colour.
LINES: dict[str, dict[str, object]] = {
    "device_used": {"label": "device used", "color": LINE_STYLES["device_used"].color},
    "reserved": {"label": "reserved", "color": LINE_STYLES["reserved"].color, "dark": "#e8eaee"},
    "active": {"label": "active", "color": "#D55E00"},
    "allocated": {"label": "allocated", "color": LINE_STYLES["allocated"].color, "dark": "#56B4E9"},
    "requested": {"label": "requested", "color": "#009E73"},
}


def line_colors() -> dict[str, dict[str, str]]:
    """Return what `themed` does for the lines; the main ones have a brighter colour on dark."""
    found = themed({name: str(line["color"]) for name, line in LINES.items()})
    for name, line in LINES.items():
        found[name] |= {"dark": str(line["dark"])} if "dark" in line else {}
    return found


def themed(colors: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return name -> colours of its line in each theme, and of its band (``fill``)."""
    return {
        name: {theme: readable(color, on=BACKGROUNDS[theme]) for theme in BACKGROUNDS}
        | {"fill": color}
        for name, color in colors.items()
    }
