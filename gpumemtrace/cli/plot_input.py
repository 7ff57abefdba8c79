"""What ``gpumemtrace plot`` draws: a trace or two, or the parts of them that were asked for."""

from __future__ import annotations

import argparse
import math
from typing import Any

from gpumemtrace.analysis.init_stretch import without_long_init
from gpumemtrace.cli.reading import open_sides, open_trace, slice_trace
from gpumemtrace.trace import Trace
from gpumemtrace.units import format_duration

__all__ = ["choose_shown"]

# Figures over the time of the run, in which a long init squeezes all else.
_OVER_TIME = ("timeline", "categories")


def choose_shown(args: argparse.Namespace, kind: str) -> tuple[Trace, dict[str, Any], str]:
    """Return what to draw, further arguments of the figure, and what to say of it."""
    if kind == "compare":
        first, second = open_sides(
            args.trace,
            args.other,
            steps_a=args.steps_a,
            steps_b=args.steps_b,
            command="gpumemtrace plot --kind compare",
            quiet=args.quiet,
        )
        return first, {"other": second}, ""
    trace = open_trace(args.trace, quiet=args.quiet)
    if args.steps is None and args.time is None and kind in _OVER_TIME:
        shown, left_out = _without_init(trace)
    else:
        shown, left_out = slice_trace(trace, args.steps, args.time), ""
    return shown, {}, left_out


def _without_init(trace: Trace) -> tuple[Trace, str]:
    init = without_long_init(trace)
    if init is None:
        return trace, ""
    start_ns, end_ns = trace.time_span_ns
    took, whole = (format_duration((at - start_ns) / 1e9) for at in (init.end_ns, end_ns))
    shown = trace.slice(time_ns=(init.end_ns, end_ns + 1))
    until_s = math.ceil((end_ns + 1) / 1e7) / 100
    return shown, f" without init ({took} of {whole}): --time 0:{until_s:.2f} shows it too"
