"""The lines of each device on one clock, streamed over a trace.

*requested*: what the program asked for and has not freed. *allocated*: the allocator's blocks for
it. *active*: those and the ones that wait for another stream. *reserved*: what the allocator took
from the driver. *device_used*: what the whole device has in use, as sampled.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.read_ahead import read_ahead
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = [
    "ALLOCATOR_LINES",
    "LINES",
    "DevicePoints",
    "LineConsumer",
    "LineStream",
    "Lines",
    "feed_lines",
    "known_lines",
]

# The lines that are known at every event, and with them the sampled one; lowest first.
ALLOCATOR_LINES = ("requested", "allocated", "active", "reserved")
LINES = (*ALLOCATOR_LINES, "device_used")


@dataclass(frozen=True)
class DevicePoints:
    """The records of a batch that belong to one device.

    ``rows``: their places in the batch; ``values``: allocator line -> int64 bytes after each.
    ``used_rows``, ``used``: places and values of the samples of the whole device.
    """

    rows: npt.NDArray[np.intp]
    values: dict[str, npt.NDArray[np.int64]]
    used_rows: npt.NDArray[np.intp]
    used: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lines:
    """The lines at every record of a batch; all arrays have the batch's length.

    ``values``: line name -> int64 bytes of the record's device after the record. ``device``:
    int16, that device, -1 = none (the values mean nothing there). ``uncertain``: bool, events of
    the device were lost and its counters not read since. ``devices``: those that occur.
    """

    batch: Batch
    values: dict[str, npt.NDArray[np.int64]]
    device: npt.NDArray[np.int16]
    uncertain: npt.NDArray[np.bool_]
    devices: tuple[int, ...]
    _points: dict[int, DevicePoints] = field(default_factory=dict)

    def points(self, device: int) -> DevicePoints:
        """Return what belongs to one device; computed once, however many analyses ask."""
        if device not in self._points:
            raw = self.batch.raw
            rows = np.flatnonzero(self.device == device)
            samples = self.batch.rows_of(Kind.DEVICE_USED)
            used_rows = samples[raw["device"][samples] == device]
            self._points[device] = DevicePoints(
                rows=rows,
                values={name: line.take(rows) for name, line in self.values.items()},
                used_rows=used_rows,
                used=raw["size_bytes"][used_rows],
            )
        return self._points[device]


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
        yield from read_ahead(self._lines())

    def _lines(self) -> Generator[tuple[Batch, Lines], None, None]:
        is_lead_in = True
        batches, self._builder = self._trace.chunks_and_lines()
        for batch in batches:
            if is_lead_in and not batch.is_lead_in:
                self.initial = self.final
                is_lead_in = False
            result = self._builder.feed(batch.raw)
            if not batch.is_lead_in:
                yield batch, _as_lines(batch, result)

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


def _as_lines(batch: Batch, result: dict[str, Any]) -> Lines:
    return Lines(
        batch=batch,
        values={name: result[name] for name in ALLOCATOR_LINES},
        device=result["device"],
        uncertain=result["uncertain"].view(np.bool_),
        devices=tuple(result["devices"]),
    )
