"""Looks at every failed request of a trace in one pass: before it, and when its call has ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpumemtrace import _core
from gpumemtrace.analysis.categories import Categories, CategoryFinder
from gpumemtrace.analysis.gap_results import Gaps, Place
from gpumemtrace.analysis.gaps import GapFinder
from gpumemtrace.analysis.lines import Lines
from gpumemtrace.analysis.live_set import LiveSet
from gpumemtrace.analysis.segments import SegmentStream, SegmentTotals
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["FailureWalk", "Scene"]

# What the thread that failed records next; up to there the records tell of the failed call.
_ENDS_CALL = (Kind.STATS, Kind.ALLOC, Kind.FREE, Kind.ALLOC_FAILED)


@dataclass
class Scene:
    """The device before a failed request, with the blocks in use, and when its call had ended."""

    gaps: Gaps | None = None
    before: SegmentTotals | None = None
    after: SegmentTotals | None = None
    gaps_after: Gaps | None = None
    blocks: LiveSet | None = None


class FailureWalk:
    """Stops before and after each failed request, and looks."""

    def __init__(
        self, trace: TraceData, requests: list[dict[str, int]], *, tells_categories: bool
    ) -> None:
        """Prepare for one pass; ``tells_categories``: what each block is for is wanted too."""
        self.gaps = GapFinder(trace.whole)
        self.scenes = [Scene() for _ in requests]
        self._requests = requests
        self._phase_paths = trace.phase_paths
        self._segments = SegmentStream()
        self._blocks = _core.LiveGroups(np.zeros(0, np.uint8), len(trace.phase_names))
        tells_categories = tells_categories and not trace.category_rules
        self._kinds = CategoryFinder(trace) if tells_categories else None
        self._next = 0  # request that has not been reached
        self._is_in_call = False  # of that request
        self.last_place = Place(0, 0, 0, None)

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take the lines of each known device as they are before the first record."""
        self.gaps.begin(initial)

    def feed(self, batch: Batch, lines: Lines) -> None:
        """Take the next batch."""
        if self._kinds is not None:
            self._kinds.feed(batch)
        done = 0
        while self._next < len(self._requests):
            end = self._next_stop(batch, done)
            if end is None:
                break
            self._feed_part(batch, lines, done, end)
            done = end
            self._look()
        self._feed_part(batch, lines, done, len(batch))
        if len(batch):
            self.last_place = self._place_after(batch)

    def gaps_at_end(self) -> dict[int, Gaps]:
        """Return the gaps of every device that has records, behind the last one."""
        return {
            device: gaps
            for device in self.gaps.devices
            if (gaps := self.gaps.now(device)) is not None
        }

    def categories(self) -> Categories | None:
        """Return the category of every alloc; None where they were not wanted, or the user has
        rules that are to be asked.
        """
        return None if self._kinds is None else self._kinds.finish()

    def _place_after(self, batch: Batch) -> Place:
        path = int(batch.phase_path[-1])
        return Place(
            time_ns=int(batch.raw["time_ns"][-1]),
            event=batch.first_event + int(np.count_nonzero(batch.is_event)),
            step=int(batch.step[-1]),
            phase=self._phase_paths[path] if path >= 0 else None,
        )

    def _next_stop(self, batch: Batch, done: int) -> int | None:
        """Return before which record to look next; None: not in this batch."""
        request = self._requests[self._next]
        place = request["record"] - batch.first_record
        if not self._is_in_call:
            return place if place < len(batch) else None
        raw = batch.raw
        first = max(done, place + 1)
        mine = raw["thread"][first:] == request["thread"]
        ends = np.flatnonzero(mine & np.isin(raw["kind"][first:], _ENDS_CALL))
        if not len(ends):
            return None
        end = first + int(ends[0])
        return end + (1 if raw["kind"][end] == Kind.STATS else 0)

    def _look(self) -> None:
        scene, request = self.scenes[self._next], self._requests[self._next]
        device = request["device"]
        if self._is_in_call:
            self._look_after(scene, device)
            self._next += 1
        else:
            scene.gaps = self.gaps.now(device, until_ns=request["time_ns"])
            scene.before = self._totals(device)
            blocks = self._blocks.live(device)
            blocks["alloc"] = blocks.pop("number")
            scene.blocks = LiveSet(**blocks)
            self._look_after(scene, device)  # lest the trace ends within the call
        self._is_in_call = not self._is_in_call

    def _look_after(self, scene: Scene, device: int) -> None:
        scene.gaps_after = self.gaps.now(device)
        scene.after = self._totals(device)

    def _totals(self, device: int) -> SegmentTotals | None:
        if device not in self._segments.devices:
            return None
        totals = self._segments.totals(device)
        return totals if totals.known else None

    def _feed_part(self, batch: Batch, lines: Lines, first: int, end: int) -> None:
        if first >= end:
            return
        self.gaps.feed_part(batch, lines, first, end)
        self._segments.feed(batch, first=first, end=end)
        cut = batch.window(first, end, first_event=0, is_lead_in=False)
        none = np.zeros(0, np.int64)
        self._blocks.feed(cut.raw, cut.step, cut.phase, none, none.astype(np.int16))
