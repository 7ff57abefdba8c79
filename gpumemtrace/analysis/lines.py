"""The lines of each device on one clock, streamed over a trace.

*requested*: what the program asked for and has not freed. *allocated*: the allocator's blocks for
it. *active*: those and the ones that wait for another stream. *reserved*: what the allocator took
from the driver. *device_used*: what the whole device has in use, as sampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = [
    "ALLOCATOR_LINES",
    "LINES",
    "LineConsumer",
    "LineStream",
    "Lines",
    "device_used_rows",
    "feed_lines",
    "known_lines",
]

# The lines that are known at every event, and with them the sampled one; lowest first.
ALLOCATOR_LINES = ("requested", "allocated", "active", "reserved")
LINES = (*ALLOCATOR_LINES, "device_used")


@dataclass(frozen=True)
class Lines:
    """The lines at every record of a batch; all arrays have the batch's length.

    ``values``: line name -> int64 bytes of the record's device after the record. ``device``:
    int16, that device, -1 = none (the values mean nothing there). ``uncertain``: bool, events of
    the device were lost and its counters not read since.
    """

    values: dict[str, npt.NDArray[np.int64]]
    device: npt.NDArray[np.int16]
    uncertain: npt.NDArray[np.bool_]

    def devices(self) -> list[int]:
        """Return the devices that have records in this batch."""
        return [d for d in np.unique(self.device).tolist() if d >= 0]

    def rows_of(self, device: int) -> npt.NDArray[np.intp]:
        """Return which records are the device's."""
        return np.flatnonzero(self.device == device)


class LineConsumer(Protocol):
    """An analysis that reads the lines as they go by."""

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take the lines of each known device as they are before the first record."""

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""


class LineStream:
    """Batches of a trace with the lines at each record; one pass.

    After the pass: ``has_stats`` (device -> whether its counters were ever read: without, active
    and reserved are not known), ``final`` (device -> line -> bytes), ``anomalies`` and
    ``anomaly_counts`` (see `gpumemtrace.analysis.check`), ``live_blocks``, ``unseen_allocs``.
    """

    def __init__(self, trace: TraceData) -> None:
        """Stream ``trace``; a slice starts with the lines that the events before it left."""
        self._trace = trace
        self._builder = _core.LineBuilder()
        self.initial: dict[int, dict[str, int]] = {}

    def __iter__(self) -> Iterator[tuple[Batch, Lines]]:
        is_lead_in = True
        for batch in self._trace.chunks(lead_in=True):
            if is_lead_in and not batch.is_lead_in:
                self.initial = self.final
                is_lead_in = False
            result = self._builder.feed(batch.raw)
            if not batch.is_lead_in:
                yield batch, _as_lines(result)

    @property
    def final(self) -> dict[int, dict[str, int]]:
        """Device -> line -> bytes, as of now."""
        return {
            device: {name: state[name] for name in ALLOCATOR_LINES}
            for device, state in self._builder.devices.items()
        }

    @property
    def has_stats(self) -> dict[int, bool]:
        """Device -> whether the allocator's counters were read at least once."""
        return {device: bool(state["has_stats"]) for device, state in self._builder.devices.items()}

    @property
    def anomalies(self) -> list[tuple[str, int, int, int, int]]:
        """The first of each type: (type, device, address, event, event it contradicts or -1)."""
        return self._builder.anomalies

    @property
    def anomaly_counts(self) -> dict[str, int]:
        """Type of anomaly -> how many."""
        return self._builder.anomaly_counts

    @property
    def unseen_allocs(self) -> int:
        """Frees of blocks whose alloc was lost in a gap, or came before the trace."""
        return self._builder.unseen_allocs

    @property
    def live_blocks(self) -> int:
        """Blocks in use at the end."""
        return self._builder.live_blocks


def feed_lines(trace: TraceData, *consumers: LineConsumer) -> LineStream:
    """Run several analyses in one pass over the trace; return the stream as it ended."""
    stream = LineStream(trace)
    has_begun = False
    for batch, lines in stream:
        if not has_begun:
            has_begun = True
            for consumer in consumers:
                consumer.begin(stream.initial)
        for consumer in consumers:
            consumer.feed(batch, lines)
    return stream


def known_lines(stream: LineStream, device: int, *, has_samples: bool) -> set[str]:
    """Return the lines that the trace tells: without counters, active and reserved it does not."""
    known = {"requested", "allocated"}
    if stream.has_stats.get(device, False):
        known |= {"active", "reserved"}
    if has_samples:
        known.add("device_used")
    return known


def device_used_rows(batch: Batch, device: int) -> npt.NDArray[np.intp]:
    """Return the samples of the whole device; their value is in ``size_bytes``."""
    raw = batch.raw
    return np.flatnonzero((raw["kind"] == Kind.DEVICE_USED) & (raw["device"] == device))


def _as_lines(result: dict[str, npt.NDArray[Any]]) -> Lines:
    return Lines(
        values={name: result[name] for name in ALLOCATOR_LINES},
        device=result["device"],
        uncertain=result["uncertain"].view(np.bool_),
    )
