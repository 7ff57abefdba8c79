"""Which records a part of a trace is made of: some steps of it, or a stretch of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gpumemtrace.marks import Marks
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind

__all__ = ["window_of_steps", "window_of_time"]


def window_of_steps(
    marks: Marks, steps: tuple[int, int], within: tuple[int, int]
) -> tuple[int, int]:
    """Return the first record of step ``steps[0]``, and the end of the last before ``steps[1]``.

    ``marks``: those of the steps, up to that one at least; ``within``: the records to choose from.
    Raises `ValueError` if there is no such step.
    """
    first, end = steps
    if not 0 <= first < end:
        raise ValueError(f"steps {first}:{end}: the first must be at least 0, the end above it")
    begins, records = (marks.of(Kind.STEP)[name] for name in ("size_bytes", "record"))
    if not marks.begins_at_step and not marks.begins_inside_step:
        begins = np.concatenate([[0], begins])
        records = np.concatenate([[within[0]], records])
    is_inside = (begins >= first) & (begins < end)
    if not is_inside.any():
        has = f"steps {begins.min()} to {begins.max()}" if len(begins) else "no step's beginning"
        raise ValueError(f"no step in {first}:{end}: the trace has {has}")
    start = int(np.argmax(is_inside))
    after = np.flatnonzero(begins[start:] >= end)
    # The mark that ends the last step belongs to the slice, so that the step is complete.
    stop = int(records[start + after[0]]) + 1 if len(after) else within[1]
    return int(records[start]), stop


def window_of_time(
    batches: Iterator[Batch],
    time_ns: tuple[int, int],
    within: tuple[int, int],
    span_ns: Callable[[], tuple[int, int]],
) -> tuple[int, int]:
    """Return the first record at ``time_ns[0]`` or later, and the first at ``time_ns[1]`` or later.

    Reads ``batches`` no further. ``within``: the records that they are; ``span_ns``: asked for the
    times of the trace if there is no record, for the `ValueError`.
    """
    start_ns, end_ns = time_ns
    asked = f"{start_ns / 1e9:g}:{end_ns / 1e9:g} s"
    if not 0 <= start_ns < end_ns:
        raise ValueError(f"time {asked}: the first must be at least 0, the end above it")
    first: int | None = None
    stop = within[1]
    for batch in batches:
        if batch.is_lead_in:
            continue
        at = batch.raw["time_ns"]
        if first is None and (at >= start_ns).any():
            first = batch.first_record + int(np.argmax(at >= start_ns))
            if end_ns > span_ns()[1]:
                break  # all that follows
        # Clocks of several threads may step back a little: the first one behind is the end.
        if (at >= end_ns).any():
            stop = batch.first_record + int(np.argmax(at >= end_ns))
            break
    if first is None or first >= stop:
        begin, end = (at / 1e9 for at in span_ns())
        raise ValueError(f"no record in {asked}: the trace has {begin:g} to {end:g} s")
    return first, stop
