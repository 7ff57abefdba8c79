"""The colours and units of every figure, and of the report.

The colours are those of Okabe and Ito ("Color Universal Design", 2008), which colour-blind readers
tell apart, and, for phases with names of the user's, Paul Tol's muted scheme (SRON technical note,
2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Literal

from gpumemtrace.analysis.rest import NOT_SEEN, SUMMARISED
from gpumemtrace.units import GIB, KIB, MIB

__all__ = [
    "AGED_COLOR",
    "CATEGORY_COLORS",
    "FREE_COLORS",
    "INK",
    "LINE_STYLES",
    "NO_PHASE",
    "NO_PHASE_COLOR",
    "REST_COLORS",
    "SIDE_COLORS",
    "WARNING",
    "LineStyle",
    "memory_unit",
    "phase_colors",
]

INK = "#222222"
WARNING = "#D55E00"


@dataclass(frozen=True)
class LineStyle:
    """How a line of a device is drawn and called."""

    label: str
    color: str
    width: float
    dashes: Literal["-", ":"]


# Top to bottom, as in the picture.
LINE_STYLES: dict[str, LineStyle] = {
    "device_used": LineStyle("device used", "#767676", 1.0, ":"),
    "reserved": LineStyle("reserved", INK, 1.0, "-"),
    "allocated": LineStyle("allocated", "#0072B2", 1.0, "-"),
}

# In the order in which they are stacked: what stays below, what comes and goes above.
CATEGORY_COLORS: dict[str, str] = {
    "parameter": "#0072B2",
    "buffer": "#56B4E9",
    "optimizer_state": "#CC79A7",
    "gradient": "#D55E00",
    "input": "#F0E442",
    "activation": "#009E73",
    "temporary": "#E69F00",
    "unknown": "#BBBBBB",
}
# What was summarised to keep the file small: stretches of time, and memory in them.
AGED_COLOR = "#999933"
# What a line says beyond the blocks that the trace knows, by its names in `analysis.rest`.
REST_COLORS: dict[str, str] = {NOT_SEEN: "#767676", SUMMARISED: AGED_COLOR}

# Free bytes by cause, in the order in which they are stacked: what can't be given back below.
FREE_COLORS: dict[str, str] = {
    "interleaved": "#D55E00",
    "small_pool": "#E69F00",
    "other_stream": "#CC79A7",
    "private_pool": "#56B4E9",
    "idle": "#BBBBBB",
}

# The two runs of a comparison.
SIDE_COLORS: dict[str, str] = {"A": "#E69F00", "B": "#0072B2"}

_KNOWN_PHASES = {
    "init": "#BBBBBB",
    "data": "#56B4E9",
    "forward": "#009E73",
    "backward": "#D55E00",
    "optimizer": "#CC79A7",
    "zero_grad": "#F0E442",
    "eval": "#E69F00",
}
_OTHER_PHASES = ("#332288", "#88CCEE", "#999933", "#882255", "#44AA99", "#DDCC77", "#AA4499")
# Outside of any phase.
NO_PHASE, NO_PHASE_COLOR = "no phase", "#767676"


def phase_colors(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each phase: the usual ones always have the same."""
    others = cycle(_OTHER_PHASES)
    return {name: _KNOWN_PHASES.get(name) or next(others) for name in names}


def memory_unit(highest_bytes: float) -> tuple[int, str]:
    """Return the unit for an axis up to ``highest_bytes``: its bytes and its name."""
    for factor, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if highest_bytes >= factor:
            return factor, name
    return 1, "B"
