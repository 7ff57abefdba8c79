"""The second look at the segments: as they are at chosen instants, at the marks, and as a map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gpumemtrace.analysis.request_curve import CurveFinder
from gpumemtrace.analysis.segment_map import SegmentMapFinder
from gpumemtrace.analysis.segments import SegmentState, SegmentStream
from gpumemtrace.records import Batch

__all__ = ["SegmentWalk"]

# Called with the batch and how many of its records the stream has taken in.
_Look = Callable[[Batch, int], None]


class SegmentWalk:
    """Replays the segments once, and stops where somebody looks; feed it the lead-in too."""

    def __init__(
        self,
        *,
        has_segments: bool,
        curve: CurveFinder,
        records: Mapping[int, int | None],
        map_finder: SegmentMapFinder | None = None,
    ) -> None:
        """Look at each device of ``records`` after that record; None: at the end.

        ``has_segments``: whether the records tell of any; without, there is nothing to replay.
        """
        self._stream = SegmentStream()
        self._has_segments = has_segments
        self._curve = curve
        self._map = map_finder
        self._records = records
        self._states: dict[int, SegmentState] = {}

    def feed(self, batch: Batch) -> None:
        """Take the next batch."""
        if not self._has_segments:
            return
        if batch.is_lead_in:
            self._stream.feed(batch)
            return
        done = 0
        for end, look in sorted(self._stops(batch), key=lambda stop: stop[0]):
            if end > done:
                self._stream.feed(batch, first=done, end=end)
                done = end
            look(batch, end)
        if done < len(batch):
            self._stream.feed(batch, first=done, end=len(batch))

    def states(self) -> dict[int, SegmentState]:
        """Return the state of each device that was asked for."""
        return {
            device: self._states.get(device) or self._stream.state(device)
            for device in self._records
        }

    def _stops(self, batch: Batch) -> list[tuple[int, _Look]]:
        """Return how many records of the batch to take in before each look."""
        stops: list[tuple[int, _Look]] = [
            (row, self._sample) for row in self._curve.cuts(batch).tolist()
        ]
        for device, record in self._records.items():
            end = -1 if record is None else record + 1 - batch.first_record
            if 0 < end <= len(batch):
                stops.append((end, partial(self._keep, device)))
        if self._map is not None:
            stops += [(end, self._look) for end in self._map.cuts(batch)]
        return stops

    def _sample(self, batch: Batch, row: int) -> None:
        self._curve.sample(self._stream, batch, row)

    def _keep(self, device: int, batch: Batch, end: int) -> None:
        self._states[device] = self._stream.state(device)

    def _look(self, batch: Batch, end: int) -> None:
        assert self._map is not None
        self._map.look(self._stream, int(batch.raw["time_ns"][end - 1]))
