"""The answers on one screen: the summary, what owned the peak, what grows, what would help.

Two passes over the trace, however many questions: what a block is for shows only when it dies, so
sums by category take a second one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gpumemtrace.analysis.advice import (
    Advice,
    Bottleneck,
    Grown,
    PeakFigures,
    advise,
    find_bottleneck,
)
from gpumemtrace.analysis.aged import find_aged
from gpumemtrace.analysis.categories import (
    CATEGORY_NAMES,
    Categories,
    CategoryFinder,
    find_categories,
)
from gpumemtrace.analysis.driver_time import DriverFinder
from gpumemtrace.analysis.facts import uses_expandable_segments, world_size
from gpumemtrace.analysis.gaps import DeviceGaps, GapFinder
from gpumemtrace.analysis.growth import DeviceGrowth, Growth, judge_growth
from gpumemtrace.analysis.lines import LineConsumer, LineStream, feed_lines
from gpumemtrace.analysis.peak_composition import PeakComposer, PeakComposition
from gpumemtrace.analysis.peak_live_set import PeakLiveSet, live_set_at
from gpumemtrace.analysis.peak_places import PeakPlaceFinder, PeakPlaces
from gpumemtrace.analysis.rest import split_rest
from gpumemtrace.analysis.retention import RetentionFinder
from gpumemtrace.analysis.step_times import StepTimes, time_steps
from gpumemtrace.analysis.summary import DeviceSummary, Summary, SummaryBuilder
from gpumemtrace.records import Batch
from gpumemtrace.trace_data import TraceData

__all__ = ["AnswerPasses", "Answers", "BatchConsumer", "DeviceAnswers", "find_answers"]


@dataclass(frozen=True)
class DeviceAnswers:
    """One device.

    ``category_bytes``: category -> bytes at the peak of the run, those that are not 0; they and
    ``summarised_bytes`` (of blocks that are only in the summary of an aged step) and
    ``not_seen_bytes`` (of blocks that the trace has not seen) add up to the allocated peak, 0 bytes
    off. ``places``, ``composition``: every step at its own peak. ``bottleneck``: None if nothing
    was allocated. ``gaps``: between the five lines; None where the device has no lines.
    """

    summary: DeviceSummary
    places: PeakPlaces
    composition: PeakComposition
    category_bytes: dict[str, int]
    summarised_bytes: int
    not_seen_bytes: int
    bottleneck: Bottleneck | None
    advice: tuple[Advice, ...]
    growth: DeviceGrowth | None
    gaps: DeviceGaps | None

    def peak_live_set(self, trace: TraceData) -> PeakLiveSet:
        """Return what was in use at the peak of the run; reads nothing."""
        row = _peak_row(self.places)
        return live_set_at(trace, self.places, self.composition, row, line="allocated")

    def to_dict(self) -> dict[str, Any]:
        """Return what the summary of the device does not have, as JSON-like values."""
        return {
            "categories_at_peak": dict(self.category_bytes),
            "summarised_at_peak_bytes": self.summarised_bytes,
            "not_seen_at_peak_bytes": self.not_seen_bytes,
            "bottleneck": None if self.bottleneck is None else self.bottleneck.to_dict(),
            "advice": [advice.to_dict() for advice in self.advice],
            "growth": None if self.growth is None else self.growth.to_dict(),
            "gaps": None if self.gaps is None else self.gaps.to_short_dict(),
        }


@dataclass(frozen=True)
class Answers:
    """See `find_answers`. ``to_dict()`` is what ``gpumemtrace summary --json`` prints.

    ``categories``: of every alloc of the whole trace, for analyses that ask more of it.
    """

    summary: Summary
    categories: Categories
    devices: tuple[DeviceAnswers, ...]
    growth: Growth
    times: StepTimes

    @property
    def top(self) -> DeviceAnswers | None:
        """The device with the highest peak; None without one."""
        return max(self.devices, key=lambda d: d.summary.highest.size_bytes, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        found = self.summary.to_dict()
        for entry, device in zip(found["devices"], self.devices, strict=True):
            entry |= device.to_dict()
        return found | {
            "categories_at_peak": {} if self.top is None else dict(self.top.category_bytes),
            "growth": {
                "verdict": self.growth.verdict,
                "bytes_per_step": 0.0
                if self.growth.worst is None
                else self.growth.worst.bytes_per_step,
            },
            "times": self.times.to_dict(),
        }


class BatchConsumer(Protocol):
    """An analysis that takes batches as they go by, also those of a lead-in."""

    def feed(self, batch: Batch) -> None:
        """Take the next batch."""


class AnswerPasses:
    """The two passes of `find_answers`, which other analyses share: call `first`, then `second`."""

    def __init__(self, trace: TraceData) -> None:
        """Prepare for both over ``trace``."""
        self._trace = trace
        self._summary, self._places = SummaryBuilder(trace), PeakPlaceFinder("allocated")
        self._driver, self._gaps = DriverFinder(trace), GapFinder(trace)

    def first(self, *others: LineConsumer) -> tuple[LineStream, Categories]:
        """Read the trace; return the stream as it ended, and what each alloc is for."""
        trace = self._trace
        kinds = CategoryFinder(trace)
        consumers = (*self._summary.consumers, self._places, self._driver, self._gaps, *others)
        is_whole = trace.whole is trace and not trace.category_rules
        self._stream = feed_lines(trace, *consumers, *((kinds,) if is_whole else ()))
        self._categories = kinds.finish() if is_whole else find_categories(trace)
        return self._stream, self._categories

    def second(self, *others: BatchConsumer) -> Answers:
        """Read the trace again, and answer."""
        trace, stream, categories = self._trace, self._stream, self._categories
        summed_up = self._summary.finish(stream)
        places = {found.device: found for found in self._places.finish()}
        look_into = {device: int(of.position[_peak_row(of)]) for device, of in places.items()}
        composer = PeakComposer(trace, list(places.values()), categories, look_into=look_into)
        kept = RetentionFinder(trace, categories)
        for batch in trace.chunks(lead_in=True):
            composer.feed(batch)
            if not batch.is_lead_in:
                kept.feed(batch)
            for other in others:
                other.feed(batch)
        peaks = tuple(device.peaks for device in summed_up.devices)
        growth = judge_growth(trace, stream, peaks, kept)
        composition = composer.finish()
        growth_of = {device.device: device for device in growth.devices}
        gaps_of = {found.device: found for found in self._gaps.finish(stream)}
        return Answers(
            summary=summed_up,
            categories=categories,
            devices=tuple(
                _answer(
                    trace,
                    device,
                    places[device.device],
                    composition[device.device],
                    growth_of.get(device.device),
                    gaps_of.get(device.device),
                )
                for device in summed_up.devices
            ),
            growth=growth,
            times=time_steps(trace, self._driver.finish()),
        )


def find_answers(trace: TraceData, *others: LineConsumer) -> Answers:
    """Ask everything that the summary tells, in two passes (a slice takes three).

    ``others`` share the first.
    """
    passes = AnswerPasses(trace)
    passes.first(*others)
    return passes.second()


def _answer(
    trace: TraceData,
    device: DeviceSummary,
    places: PeakPlaces,
    composition: PeakComposition,
    growth: DeviceGrowth | None,
    gaps: DeviceGaps | None,
) -> DeviceAnswers:
    row = _peak_row(places)
    at_peak = composition.category_bytes[row]
    rest = places.lines["allocated"] - composition.category_bytes.sum(axis=1)
    summarised, not_seen = split_rest(rest, find_aged(trace).covers(places.number))
    by_name = {name: int(size) for name, size in zip(CATEGORY_NAMES, at_peak, strict=True) if size}
    figures = PeakFigures(
        allocated_bytes=device.highest.size_bytes,
        phase=device.highest.phase,
        category_bytes=by_name,
        composition=composition,
        active_bytes=_peak(device, "active"),
        reserved_bytes=_peak(device, "reserved"),
        outside_bytes=_outside(gaps),
        expandable_segments=uses_expandable_segments(trace.run_record),
        world_size=world_size(trace.run_record),
        grown=_grown(growth, device.highest.step),
        earlier_activation_bytes=_earlier_activations(composition, device.highest.step),
    )
    return DeviceAnswers(
        summary=device,
        places=places,
        composition=composition,
        category_bytes=by_name,
        summarised_bytes=int(summarised[row]),
        not_seen_bytes=int(not_seen[row]),
        bottleneck=find_bottleneck(figures),
        advice=advise(figures),
        growth=growth,
        gaps=gaps,
    )


def _grown(growth: DeviceGrowth | None, peak_step: int) -> Grown | None:
    """What steps had kept when the peak was reached; None where nothing grows."""
    if growth is None or growth.verdict != "growing" or growth.first_step is None:
        return None
    owner = growth.owners[0] if growth.owners else None
    words = None if owner is None else f"{owner.category} of {owner.phase or 'no phase'}"
    steps = peak_step - growth.first_step
    return Grown(growth.bytes_per_step, steps, growth.first_step, words)


def _earlier_activations(composition: PeakComposition, peak_step: int) -> int:
    blocks = composition.blocks
    return 0 if blocks is None else blocks.bytes_from_earlier("activation", step=peak_step)


def _peak_row(places: PeakPlaces) -> int:
    return int(np.argmax(places.lines["allocated"]))


def _peak(device: DeviceSummary, line: str) -> int | None:
    peak = device.peaks.lines[line]
    return None if peak is None else peak.size_bytes


def _outside(gaps: DeviceGaps | None) -> int | None:
    """What is in use on the card beside what the allocator holds, when it is fullest."""
    fullest = None if gaps is None else gaps.highest.get("device_used")
    if fullest is None or fullest.gaps.outside is None:
        return None
    beside = (fullest.gaps.outside, fullest.gaps.others, fullest.gaps.unattributed)
    return max(sum(size or 0 for size in beside), 0)
