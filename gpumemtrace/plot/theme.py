"""Light, dark, or a style sheet of the user's: and the colours of text and lines on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import colors
from matplotlib import style as mpl_style

from gpumemtrace.plot.contrast import mix, readable
from gpumemtrace.plot.style import INK

__all__ = ["THEMES", "faint", "find_theme", "ground", "ink", "line_color", "quiet", "theme"]

_COMMON: dict[str, Any] = {
    "font.size": 9.0,
    "axes.labelsize": 9.0,
    "axes.titlesize": 9.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 9.0,
    "axes.linewidth": 0.8,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "hatch.linewidth": 0.7,
}


def _colors(page: str, text: str) -> dict[str, Any]:
    of_page = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    of_text = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    return dict.fromkeys(of_page, page) | dict.fromkeys(of_text, text)


THEMES: dict[str, dict[str, Any]] = {
    "light": _COMMON | _colors("#ffffff", INK),
    "dark": _COMMON | _colors("#1b1e24", "#e8eaee"),
}


def find_theme(name: str) -> list[Any]:
    """Return the style sheets of a theme: one of `THEMES`, or a style sheet of matplotlib's.

    ``name``: also a file, or the name of a style sheet; what it doesn't set is as in ``light``.
    The user's own matplotlibrc is left out, so that the same command draws the same picture.
    Raises `ValueError` for one that is not there, or that can't be read.
    """
    if name in THEMES:
        return ["default", THEMES[name]]
    if name in mpl_style.library:
        return ["default", THEMES["light"], name]
    if not Path(name).is_file():
        raise ValueError(
            f"no style {name!r}: it must be light, dark, a file, or a style sheet of matplotlib's "
            "such as ggplot"
        )
    try:
        sheet = mpl.rc_params_from_file(name, use_default_template=False)
    except (ValueError, OSError) as error:
        raise ValueError(f"{name} is no style sheet of matplotlib's: {error}") from None
    if not sheet:
        raise ValueError(f"{name} is no style sheet of matplotlib's: it sets nothing")
    return ["default", THEMES["light"], sheet]


@contextmanager
def theme(name: str = "light") -> Iterator[None]:
    """Draw in a theme while the context is open; see `find_theme`."""
    with mpl_style.context(find_theme(name)):
        yield


def ground() -> str:
    """Return the colour that the data lies on."""
    name = mpl.rcParams["axes.facecolor"]
    return "#ffffff" if name == "none" else _hex(name)


def ink() -> str:
    """Return the colour of text."""
    return _hex(mpl.rcParams["text.color"])


def quiet() -> str:
    """Return the colour of what is less important."""
    return mix(ink(), ground(), 0.38)


def faint() -> str:
    """Return the colour of grids."""
    return mix(ink(), ground(), 0.85)


def line_color(color: str) -> str:
    """Return ``color`` such that a line of it can be seen."""
    return ink() if color == INK else readable(color, on=ground())


def _hex(color: Any) -> str:
    return colors.to_hex(color)
