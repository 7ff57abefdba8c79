"""One HTML file: template, styles, scripts and data together; nothing is loaded from outside.

The page forbids itself any connection (Content-Security-Policy), and runs only the scripts whose
hashes it names: what a trace holds can neither load nor run anything. Data goes in packed (see
`packing`), and the scripts put it on the page as text alone.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from functools import cache
from pathlib import Path

import gpumemtrace
from gpumemtrace.plot.style import (
    CATEGORY_COLORS,
    NO_PHASE_COLOR,
    REST_COLORS,
    phase_colors,
)
from gpumemtrace.report.head import gather_head, title_of
from gpumemtrace.report.packing import pack
from gpumemtrace.report.palette import LINES, line_colors, themed
from gpumemtrace.report.results import Results
from gpumemtrace.report.sections import SECTIONS, sections_of

__all__ = ["render_page"]

_STATIC = Path(__file__).parent / "static"
_HOLE = re.compile(r"\{\{(\w+)\}\}")
# In this order: each uses what is defined before it.
_SCRIPTS = (
    "core",
    "format",
    "table",
    "colors",
    "chart",
    "time_view",
    "strip",
    "time_chart",
    "lines_chart",
    "stack_chart",
    "segment_map",
    "gap_bars",
    "icicle",
    "head",
)


def render_page(results: Results, *, by: str | None = None) -> str:
    """Return the page as HTML. ``by``: the grouping that it opens with, where there are several."""
    title = title_of(results)
    data = {
        "gpumemtrace": gpumemtrace.__version__,
        "by": by,
        "head": gather_head(results),
        "lines": LINES,
        "colors": {
            "lines": line_colors(),
            "phases": themed(phase_colors(results.timeline.phases.names) | {"": NO_PHASE_COLOR}),
            "categories": themed(CATEGORY_COLORS | REST_COLORS),
        },
        "sections": [
            {"name": section.NAME, "title": section.TITLE, "data": section.gather(results)}
            for section in sections_of(results)
        ],
    }
    return _fill(
        _text("template.html"),
        title=html.escape(title),
        policy=_policy(),
        style=_style(),
        plotting=_plotting(),
        script=_script(),
        data=pack(data),
    )


def _fill(template: str, **values: str) -> str:
    """Put the values into their holes, once: what is in a value stays as it is."""
    return _HOLE.sub(lambda hole: values[hole[1]], template)


@cache
def _policy() -> str:
    scripts = " ".join(_hash(script) for script in (_plotting(), _script()))
    return f"default-src 'none'; script-src {scripts}; style-src {_hash(_style())}"


@cache
def _style() -> str:
    return _text("uplot/uPlot.min.css") + _text("page.css")


@cache
def _plotting() -> str:
    # The licence asks that its text goes with every copy.
    return f"/*\n{_text('uplot/LICENSE')}*/\n{_text('uplot/uPlot.iife.min.js')}"


@cache
def _script() -> str:
    sections = [f"sections/{section.NAME}" for section in SECTIONS]
    parts = [_text(f"{name}.js") for name in (*_SCRIPTS, *sections, "main")]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _text(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")
