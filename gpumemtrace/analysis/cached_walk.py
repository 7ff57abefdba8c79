"""The first look at the segments: cached memory over time, what was asked for, what was free."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.cached_series import CachedFinder
from gpumemtrace.analysis.device_free import DeviceFree
from gpumemtrace.analysis.lines import Lines
from gpumemtrace.analysis.segments import SegmentStream
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["CachedWalk", "DeviceCache"]


@dataclass(frozen=True)
class DeviceCache:
    """What one device showed. ``largest``: int64, the largest request by phase; none last."""

    cached: CachedFinder
    free: DeviceFree
    largest: npt.NDArray[np.int64]


class CachedWalk:
    """Looks at every device as batches go by (a `LineConsumer`)."""

    def __init__(self, trace: TraceData) -> None:
        """Prepare for one pass over ``trace``."""
        self._trace = trace
        self._stream = SegmentStream()
        self.has_segments = False  # whether the records tell of any
        self._devices: dict[int, DeviceCache] = {}

    def begin(self, initial: dict[int, dict[str, int]] | None = None) -> None:
        """Replay what came before a slice; the lines then don't matter here."""
        if self._trace.whole is self._trace:
            return
        for batch in self._trace.chunks(lead_in=True):
            if not batch.is_lead_in:
                break
            self._note_segments(batch)
            self._stream.feed(batch)

    def feed(self, batch: Batch, lines: Lines | None = None) -> None:
        """Take the next batch."""
        self._note_segments(batch)
        if self.has_segments:
            free = self._stream.feed_lines(batch)
            reserved = free.reserved
        else:  # then nothing is known of any device, and there is nothing to look at
            free = None
            reserved = np.broadcast_to(np.int64(0), len(batch))
            self._stream.feed(batch)
        raw = batch.raw
        asked = np.where(raw["kind"] == Kind.ALLOC, raw["size_bytes"], 0)
        for number in self._stream.devices:
            device = self.device(number)
            if free is not None:
                device.cached.feed(batch, free)
            device.free.feed(batch, reserved)
            np.maximum.at(device.largest, batch.phase, np.where(raw["device"] == number, asked, 0))

    def device(self, number: int) -> DeviceCache:
        """Return what was found of a device so far."""
        if number not in self._devices:
            self._devices[number] = DeviceCache(
                CachedFinder(number, self._trace.time_span_ns),
                DeviceFree(number),
                np.zeros(len(self._trace.phase_names) + 1, np.int64),
            )
        return self._devices[number]

    def _note_segments(self, batch: Batch) -> None:
        self.has_segments = self.has_segments or any(
            len(batch.rows_of(kind)) for kind in (Kind.SEGMENT_ALLOC, Kind.SEGMENT_MAP)
        )
