"""What the report shows: the results of the analyses.

They share the two passes of `AnswerPasses`. A third is read as far as it takes where failed
requests are to be explained, or the blocks that pin segments traced back to where they were born;
further ones of a trace that tells of modules or call sites.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpumemtrace.analysis.answers import AnswerPasses, Answers
from gpumemtrace.analysis.cached_walk import CachedWalk
from gpumemtrace.analysis.category_timeline import CategoryReader, CategoryTimeline, PlaceSampler
from gpumemtrace.analysis.fragmentation import Fragmentation, FragmentationFinder
from gpumemtrace.analysis.growth import Growth
from gpumemtrace.analysis.losses import Loss, find_losses
from gpumemtrace.analysis.oom import Oom, find_oom
from gpumemtrace.analysis.owner_tree import DeviceOwners, trees_of
from gpumemtrace.analysis.peak_live_set import PeakLiveSet
from gpumemtrace.analysis.segment_map import SegmentMap, SegmentMapFinder
from gpumemtrace.analysis.step_phases import StepPhases, StepPhasesFinder
from gpumemtrace.analysis.step_times import StepTimes
from gpumemtrace.analysis.summary import Summary
from gpumemtrace.analysis.timeline import Timeline, TimelineBuilder
from gpumemtrace.trace_data import TraceData

__all__ = ["Results", "collect"]

# Columns of the lines over time. Few enough that a page of them stays small for any run; of a
# short one so many that most events have a column of their own.
_COLUMNS = 1 << 16
_COLUMNS_OF_SHORT = 1 << 18
_SHORT_RECORDS = 200_000
_CATEGORY_COLUMNS = 2000
_MAP_COLUMNS = 240
_MAP_ROWS = 192


@dataclass(frozen=True)
class Results:
    """Everything that the sections are made of."""

    answers: Answers
    timeline: Timeline
    step_phases: tuple[StepPhases, ...]
    category_timelines: tuple[CategoryTimeline, ...]
    peak_live_sets: tuple[PeakLiveSet, ...]
    owner_trees: tuple[DeviceOwners, ...]
    fragmentations: tuple[Fragmentation, ...]
    segment_maps: tuple[SegmentMap, ...]
    oom: Oom
    losses: tuple[Loss, ...]

    @property
    def summary(self) -> Summary:
        """The figures of the run."""
        return self.answers.summary

    @property
    def growth(self) -> Growth:
        """Whether memory grows from step to step."""
        return self.answers.growth

    @property
    def step_times(self) -> StepTimes:
        """How long steps take."""
        return self.answers.times


def collect(trace: TraceData, *, columns: int | None = None) -> Results:
    """Ask the analyses. ``columns``: how fine the lines are over time."""
    if columns is None:
        columns = _columns_for(trace)
    timeline = TimelineBuilder(trace, columns=columns)
    step_phases = StepPhasesFinder(trace)
    places = PlaceSampler(trace, columns=_CATEGORY_COLUMNS)
    cached = CachedWalk(trace)
    passes = AnswerPasses(trace)
    stream, categories = passes.first(timeline, step_phases, places, cached)
    by_category = CategoryReader(trace, places, categories)
    addresses = SegmentMapFinder(trace, columns=_MAP_COLUMNS)
    fragmentation = FragmentationFinder(
        trace, cached, devices=trace.active_devices, map_finder=addresses
    )
    answers = passes.second(by_category, fragmentation.walk)
    peaks = tuple(device.peaks for device in answers.summary.devices)
    live_sets = tuple(
        device.peak_live_set(trace)
        for device in answers.devices
        if device.summary.device in trace.active_devices
    )
    return Results(
        answers=answers,
        timeline=timeline.finish(stream, peaks),
        step_phases=step_phases.finish(),
        category_timelines=by_category.finish(),
        peak_live_sets=live_sets,
        owner_trees=trees_of(trace, live_sets, categories=categories),
        fragmentations=fragmentation.finish(),
        segment_maps=addresses.finish(rows=_MAP_ROWS),
        oom=find_oom(trace, categories=categories),
        losses=find_losses(trace),
    )


def _columns_for(trace: TraceData) -> int:
    if trace.whole_record_count <= _SHORT_RECORDS:
        return _COLUMNS_OF_SHORT
    # The more devices, the fewer columns for each: a page has a size for all of them.
    devices = trace.run_record.get("devices")
    count = len(devices) if isinstance(devices, list) else 1
    return _COLUMNS // max(1, 1 << (count - 1).bit_length()) if count > 1 else _COLUMNS
