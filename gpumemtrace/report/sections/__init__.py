"""The parts of the page, top to bottom.

A section is a module of this package with

``NAME``    its anchor, and the name of its renderer in ``static/sections/<NAME>.js``
``TITLE``   its heading
``gather(results) -> dict``
    what the renderer needs: JSON-like values and integer arrays (see `gpumemtrace.report.packing`).
    What the trace does not tell, the section says in words: ``{"unknown": "..."}``.

To add one, write both files and list the module here. Of a run that died for want of memory, the
page begins with why (`sections_of`).
"""

from __future__ import annotations

from typing import Any, Protocol, cast

from gpumemtrace.report.results import Results
from gpumemtrace.report.sections import (
    categories,
    gaps,
    growth,
    losses,
    modules,
    out_of_memory,
    overhead,
    overview,
    peak,
    phases,
    run,
    segments,
    timeline,
    times,
)

__all__ = ["SECTIONS", "Section", "sections_of"]


class Section(Protocol):
    """What each module in `SECTIONS` provides."""

    NAME: str
    TITLE: str

    def gather(self, results: Results) -> dict[str, Any]:
        """Return what the renderer needs."""


SECTIONS: tuple[Section, ...] = tuple(
    cast(Section, module)
    for module in (
        overview,
        timeline,
        categories,
        peak,
        modules,
        phases,
        growth,
        gaps,
        segments,
        out_of_memory,
        times,
        losses,
        overhead,
        run,
    )
)


def sections_of(results: Results) -> tuple[Section, ...]:
    """Return the sections in the order in which the page of ``results`` has them."""
    is_first = out_of_memory.is_fatal(results)
    return tuple(
        sorted(SECTIONS, key=lambda section: not (is_first and section.NAME == out_of_memory.NAME))
    )
