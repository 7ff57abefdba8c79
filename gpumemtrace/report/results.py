"""What the report shows: the results of the analyses, in as few passes as can be."""

from __future__ import annotations

from dataclasses import dataclass

from gpumemtrace.analysis.categories import find_categories
from gpumemtrace.analysis.category_timeline import CategoryTimeline, PlaceSampler, read_categories
from gpumemtrace.analysis.driver_time import DriverFinder
from gpumemtrace.analysis.growth import Growth, judge_growth
from gpumemtrace.analysis.lines import feed_lines
from gpumemtrace.analysis.peak_live_set import PeakLiveSet, find_peak_live_set
from gpumemtrace.analysis.recorder_cost import CostFinder, RecorderCost
from gpumemtrace.analysis.retention import RetentionFinder
from gpumemtrace.analysis.step_phases import StepPhases, StepPhasesFinder
from gpumemtrace.analysis.step_times import StepTimes, time_steps
from gpumemtrace.analysis.summary import Summary, SummaryBuilder
from gpumemtrace.analysis.timeline import Timeline, TimelineBuilder
from gpumemtrace.trace_data import TraceData

__all__ = ["Results", "collect"]

# Columns of the lines over time. Few enough that a page of them stays small for any run; of a
# short one so many that most events have a column of their own.
_COLUMNS = 1 << 16
_COLUMNS_OF_SHORT = 1 << 18
_SHORT_RECORDS = 200_000
_CATEGORY_COLUMNS = 2000


@dataclass(frozen=True)
class Results:
    """Everything that the sections are made of."""

    summary: Summary
    timeline: Timeline
    step_phases: tuple[StepPhases, ...]
    category_timelines: tuple[CategoryTimeline, ...]
    peak_live_sets: tuple[PeakLiveSet, ...]
    growth: Growth
    step_times: StepTimes
    cost: RecorderCost


def collect(trace: TraceData, *, columns: int | None = None) -> Results:
    """Ask the analyses. ``columns``: how fine the lines are over time."""
    if columns is None:
        columns = _columns_for(trace)
    categories = find_categories(trace)
    summary = SummaryBuilder(trace)
    timeline = TimelineBuilder(trace, columns=columns)
    step_phases, driver, cost = StepPhasesFinder(trace), DriverFinder(trace), CostFinder(trace)
    kept = RetentionFinder(trace, categories)
    places = PlaceSampler(trace, columns=_CATEGORY_COLUMNS)
    stream = feed_lines(
        trace, *summary.consumers, timeline, step_phases, driver, cost, kept, places
    )
    summed_up = summary.finish(stream)
    peaks = tuple(device.peaks for device in summed_up.devices)
    return Results(
        summary=summed_up,
        timeline=timeline.finish(stream, peaks),
        step_phases=step_phases.finish(),
        category_timelines=read_categories(trace, places, categories),
        peak_live_sets=tuple(
            find_peak_live_set(trace, device=device, categories=categories)
            for device in trace.active_devices
        ),
        growth=judge_growth(trace, stream, peaks, kept),
        step_times=time_steps(trace, driver.finish()),
        cost=cost.finish(),
    )


def _columns_for(trace: TraceData) -> int:
    if trace.whole_record_count <= _SHORT_RECORDS:
        return _COLUMNS_OF_SHORT
    # The more devices, the fewer columns for each: a page has a size for all of them.
    devices = trace.run_record.get("devices")
    count = len(devices) if isinstance(devices, list) else 1
    return _COLUMNS // max(1, 1 << (count - 1).bit_length()) if count > 1 else _COLUMNS
