"""The phases as a strip below a timeline."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from gpumemtrace.analysis.phase_bands import PhaseBands
from gpumemtrace.plot.contrast import is_light
from gpumemtrace.plot.frame import plain
from gpumemtrace.plot.style import phase_colors

__all__ = ["plot_phases"]

# Where most stretches are narrower than this part of the picture, they can't be told apart one by
# one: shares of time are shown instead.
_NARROW = 0.0025
_SHARE_COLUMNS = 160
# How many letters of a band's name an inch of the picture holds.
_BAND_LETTERS_PER_INCH = 11.5


def plot_phases(phases: PhaseBands, *, ax: Axes) -> Axes:
    """Draw the phases as a strip: bands with names where they fit, else shares of time."""
    colors = phase_colors(phases.names)
    ax.set_ylim(0, 1)
    ax.set_yticks([])
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    low, high = ax.get_xlim()
    start, width = phases.start_ns / 1e9, (phases.end_ns - phases.start_ns) / 1e9
    if np.mean(width < _NARROW * (high - low)) <= 0.5:
        label = "phase"
        _draw_bands(phases, colors, start, width, ax)
    else:
        label = "phases,\nshare of time"
        _draw_shares(phases, colors, ax)
    ax.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
    _name_bands(phases, colors, start, width, ax)
    return ax


def _draw_bands(
    phases: PhaseBands,
    colors: dict[str, str],
    start: npt.NDArray[np.float64],
    width: npt.NDArray[np.float64],
    ax: Axes,
) -> None:
    for i, name in enumerate(phases.names):
        mine = phases.phase == i
        if mine.any():
            spans = list(zip(start[mine], width[mine], strict=True))
            ax.broken_barh(spans, (0, 1), facecolors=colors[name], linewidth=0)


def _name_bands(
    phases: PhaseBands,
    colors: dict[str, str],
    start: npt.NDArray[np.float64],
    width: npt.NDArray[np.float64],
    ax: Axes,
) -> None:
    low, high = ax.get_xlim()
    inches = ax.figure.bbox.width / ax.figure.dpi
    letter = (high - low) / (_BAND_LETTERS_PER_INCH * inches)
    for i, begin, length in zip(phases.phase, start, width, strict=True):
        name = phases.names[i]
        if length > letter * (len(name) + 2):
            ax.text(
                begin + length / 2,
                0.47,
                plain(name),
                ha="center",
                va="center",
                fontsize=8,
                color="black" if is_light(colors[name]) else "white",
                clip_on=True,
            )


def _draw_shares(phases: PhaseBands, colors: dict[str, str], ax: Axes) -> None:
    """Stack the shares of the phases in coarse columns: each holds several steps."""
    low, high = ax.get_xlim()
    parts = np.array_split(phases.share, min(_SHARE_COLUMNS, len(phases.share)))
    shares = np.array([part.mean(axis=0) for part in parts])
    edges = np.linspace(low, high, len(shares) + 1)
    bottom = np.zeros(len(shares))
    for i, name in enumerate(phases.names):
        top = bottom + shares[:, i]
        ax.stairs(top, edges, baseline=bottom, fill=True, color=colors[name], linewidth=0)
        bottom = top
