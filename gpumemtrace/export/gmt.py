"""A trace again, with the same records: what is left out of its texts is decided before."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.export.formats import ExportOptions, Written
from gpumemtrace.trace_data import TraceData

__all__ = ["write"]


def write(trace: TraceData, output: Path, options: ExportOptions) -> Written:
    """Write the whole trace.

    Raises `GpuMemTraceError` for a part of one: it would lack the blocks in use when it begins.
    """
    if trace.whole is not trace or options != ExportOptions(table=options.table):
        raise GpuMemTraceError(
            "a trace is written as a whole: leave out --steps, --device and --at, which the "
            "commands that read it take"
        )
    trace.save(output, time_resolution_ns=_resolution_ns(trace), force=True)
    return Written(trace.record_count, "records")


def _resolution_ns(trace: TraceData) -> int:
    """Return what all times are multiples of."""
    resolution = 0
    for batch in trace.chunks():
        resolution = int(np.gcd.reduce(batch.raw["time_ns"], initial=resolution))
        if resolution == 1:
            break
    return max(resolution, 1)
