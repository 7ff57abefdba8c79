"""The figures by name. Each is a module with ``build(trace, …)`` and ``draw(result, …)``.

Those of ``compare`` take a second trace, ``other``, as well.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol, cast

from matplotlib.figure import Figure

from gpumemtrace.trace_data import TraceData

__all__ = ["FigureKind", "load_kind"]


class FigureKind(Protocol):
    """What a module of a figure provides."""

    def build(
        self, trace: TraceData, *, devices: Sequence[int] | None = None, columns: int = 2000
    ) -> Any:
        """Compute what the figure shows."""

    def draw(self, result: Any, *, size_inches: tuple[float, float] | None = None) -> Figure:
        """Draw it; computes nothing."""


def load_kind(name: str) -> FigureKind:
    """Return the figure ``name`` (see `gpumemtrace.plot.KINDS`)."""
    return cast(FigureKind, importlib.import_module(f"gpumemtrace.plot.{name}"))
