"""Does memory grow from step to step, how fast, and what grows?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.aged import find_aged
from gpumemtrace.analysis.categories import Categories, find_categories
from gpumemtrace.analysis.facts import device_facts
from gpumemtrace.analysis.growth_keepers import name_keepers
from gpumemtrace.analysis.growth_owners import Owner, find_first_row, find_owners
from gpumemtrace.analysis.growth_rate import LEAST_STEPS, Rate, find_rate, find_reserved_rate
from gpumemtrace.analysis.large_step import LargeStep, find_large_step
from gpumemtrace.analysis.lines import LineStream, feed_lines
from gpumemtrace.analysis.peaks import DevicePeaks, PeakFinder
from gpumemtrace.analysis.retention import BirthGroup, DeviceRetention, RetentionFinder
from gpumemtrace.analysis.trend import Slope, find_regimes
from gpumemtrace.html_tables import html_table
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_bytes

__all__ = [
    "VERDICTS",
    "DeviceGrowth",
    "Growth",
    "RetainedSteps",
    "Survivors",
    "find_growth",
    "judge_growth",
]

# The most alarming first.
VERDICTS = ("growing", "fragmentation", "one_large_step", "warming_up", "stable")
_RECENT_STEPS = 20


@dataclass(frozen=True)
class Survivors:
    """Of what was born ``youngest`` to ``oldest`` steps ago: bytes per step that are in use."""

    youngest: int
    oldest: int
    bytes_per_step: float


@dataclass(frozen=True)
class RetainedSteps:
    """What was in use at the end of each step, by where it was born.

    ``number``: int64, steps; ``groups``: phase and category of birth; ``size_bytes``: int64
    (steps, groups), allocated bytes.
    """

    number: npt.NDArray[np.int64]
    groups: tuple[BirthGroup, ...]
    size_bytes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class DeviceGrowth:
    """The growth of one device.

    ``verdict``: one of `VERDICTS`. ``bytes_per_step``: how fast what is in use grows (for
    ``fragmentation``: reserved memory beyond it), with the bounds of its confidence interval; 0 if
    it doesn't grow. ``from_step`` to ``to_step``: the steps after the warm-up, which were judged;
    None if there are too few. ``first_step``: in which the growth began. ``steps_until_full``: None
    if it doesn't grow or the device's memory is not known. ``headroom_bytes``: what the device has
    left over the highest of the last steps, ``reserved_headroom_bytes`` over what is reserved.
    """

    device: int
    verdict: str
    steps: int
    from_step: int | None
    to_step: int | None
    rate: Slope | None
    first_step: int | None
    owners: tuple[Owner, ...]
    large_step: LargeStep | None
    steps_until_full: int | None
    capacity_bytes: int | None
    headroom_bytes: int | None
    reserved_headroom_bytes: int | None
    survivors: tuple[Survivors, ...]
    retained: RetainedSteps

    @property
    def bytes_per_step(self) -> float:
        """How fast it grows; 0 if it does not."""
        return 0.0 if self.rate is None else self.rate.value

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        rate, large = self.rate, self.large_step
        return {
            "device": self.device,
            "verdict": self.verdict,
            "bytes_per_step": self.bytes_per_step,
            "interval": None
            if rate is None
            else {"low": rate.low, "high": rate.high, "confidence": rate.confidence},
            "estimator": "theil_sen",
            "steps": self.steps,
            "from_step": self.from_step,
            "to_step": self.to_step,
            "first_step": self.first_step,
            "steps_until_full": self.steps_until_full,
            "capacity_bytes": self.capacity_bytes,
            "headroom_bytes": self.headroom_bytes,
            "reserved_headroom_bytes": self.reserved_headroom_bytes,
            "owners": [owner.to_dict() for owner in self.owners],
            "large_step": None if large is None else large.to_dict(),
            "survivors": [
                {"ages": [s.youngest, s.oldest], "bytes_per_step": s.bytes_per_step}
                for s in self.survivors
            ],
            "retained": [
                {
                    "phase": group.phase,
                    "category": group.category,
                    "first_bytes": int(self.retained.size_bytes[0, i]),
                    "last_bytes": int(self.retained.size_bytes[-1, i]),
                }
                for i, group in enumerate(self.retained.groups)
                if len(self.retained.number)
            ],
        }


@dataclass(frozen=True)
class Growth:
    """The growth of every device; ``verdict``: the most alarming of theirs."""

    devices: tuple[DeviceGrowth, ...]

    @property
    def worst(self) -> DeviceGrowth | None:
        """The device with the most alarming verdict, then the fastest; None without a device."""
        return min(
            self.devices,
            key=lambda d: (VERDICTS.index(d.verdict), -d.bytes_per_step),
            default=None,
        )

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        return "stable" if self.worst is None else self.worst.verdict

    def _repr_html_(self) -> str:
        """Show itself in a notebook: the verdict on each device."""
        rows = [
            (
                f"cuda:{device.device}",
                device.verdict.replace("_", " "),
                format_bytes(device.bytes_per_step),
                "" if device.first_step is None else f"{device.first_step:,}",
                "" if device.steps_until_full is None else f"{device.steps_until_full:,}",
            )
            for device in self.devices
        ]
        columns = ["device", "verdict", "per step", "since step", "steps until full"]
        return html_table("Growth from step to step", columns, rows)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        worst = self.worst
        return {
            "verdict": self.verdict,
            "bytes_per_step": 0.0 if worst is None else worst.bytes_per_step,
            "devices": [device.to_dict() for device in self.devices],
        }


def find_growth(
    trace: TraceData,
    *,
    from_step: int | None = None,
    categories: Categories | None = None,
) -> Growth:
    """Judge whether memory grows from step to step, in one pass, and one for `find_categories`.

    ``from_step``: leave earlier steps out; by default the warm-up is detected. ``categories``: of
    this trace, where the caller has them already.
    """
    if categories is None:
        categories = find_categories(trace)
    peaks, kept = PeakFinder(trace), RetentionFinder(trace, categories)
    stream = feed_lines(trace, peaks, kept)
    return judge_growth(trace, stream, peaks.finish(stream), kept, from_step=from_step)


def judge_growth(
    trace: TraceData,
    stream: LineStream,
    peaks: tuple[DevicePeaks, ...],
    kept: RetentionFinder,
    *,
    from_step: int | None = None,
) -> Growth:
    """Judge what one pass found, for callers that share it with other analyses."""
    peaks_of = {device.device: device for device in peaks}
    found = [_judge(trace, peaks_of[device.device], device, from_step) for device in kept.finish()]
    named = name_keepers(trace, [device.owners for device in found])
    return Growth(tuple(replace(d, owners=owners) for d, owners in zip(found, named, strict=True)))


def _judge(
    trace: TraceData, peaks: DevicePeaks, kept: DeviceRetention, from_step: int | None
) -> DeviceGrowth:
    # Of steps that are told as one it is the end of the last.
    ends = peaks.steps.number + peaks.steps.count - 1
    retained = RetainedSteps(ends[kept.ordinal], kept.groups, kept.retained_bytes)
    kept, number = kept.by_phase(), retained.number
    # Rows that stand for several steps have no rate per step.
    first_single = find_aged(trace).first_single_step
    earliest = int(np.searchsorted(number, max(from_step or 0, first_single)))
    total = kept.retained_bytes.sum(axis=1)
    count = len(number) - earliest
    regimes = [0]
    if count > LEAST_STEPS:
        regimes = find_regimes(total[earliest:], least_steps=LEAST_STEPS)
    start = earliest + regimes[-1]
    is_known = count > LEAST_STEPS
    rate = find_rate(kept, start) if is_known else None
    large = reserved_rate = None
    if is_known and rate is None:
        reserved_rate = _reserved_rate(peaks, kept, start)
        large = find_large_step(kept, peaks, [earliest + place for place in regimes], number)
    verdict = _verdict(is_known, rate, reserved_rate, large)
    shown = rate or reserved_rate
    if verdict not in ("growing", "fragmentation"):
        shown = None
    capacity = device_facts(trace.run_record, kept.device).capacity_bytes
    headroom, reserved_headroom = _headroom(peaks, capacity)
    first_row = 0 if shown is None else find_first_row(kept, shown)
    return DeviceGrowth(
        device=kept.device,
        verdict=verdict,
        steps=trace.steps.total,
        from_step=int(number[start]) if is_known else None,
        to_step=int(number[-1]) if is_known else None,
        rate=None if shown is None else shown.slope,
        first_step=None if shown is None else int(number[first_row]),
        owners=() if shown is None else find_owners(kept, shown, first_row),
        large_step=large if verdict == "one_large_step" else None,
        steps_until_full=_steps_until_full(
            shown, reserved_headroom if verdict == "fragmentation" else headroom
        ),
        capacity_bytes=capacity,
        headroom_bytes=headroom,
        reserved_headroom_bytes=reserved_headroom,
        survivors=_survivors_by_age(kept, peaks.steps.count),
        retained=retained,
    )


def _verdict(
    is_known: bool, rate: Rate | None, reserved_rate: Rate | None, large: LargeStep | None
) -> str:
    if not is_known or (rate is not None and rate.fades):
        return "warming_up"
    if rate is not None:
        return "growing"
    if reserved_rate is not None:
        return "fragmentation"
    return "stable" if large is None else "one_large_step"


def _reserved_rate(peaks: DevicePeaks, kept: DeviceRetention, start: int) -> Rate | None:
    if "reserved" not in peaks.steps.end:
        return None
    reserved = peaks.steps.end["reserved"][kept.ordinal]
    # Rows may leave steps out, but no peak among them.
    highest = np.maximum.accumulate(peaks.steps.peak["active"])[kept.ordinal]
    return find_reserved_rate(kept.ordinal, reserved, highest, start)


def _headroom(peaks: DevicePeaks, capacity: int | None) -> tuple[int | None, int | None]:
    """Bytes left on the device over the highest recent step, and over what is reserved."""
    end, peak = peaks.steps.end, peaks.steps.peak
    if capacity is None:
        return None, None
    outside = 0
    if "device_used" in end and "reserved" in end:
        is_sampled = np.flatnonzero(end["device_used"] >= 0)
        if len(is_sampled):
            last = is_sampled[-1]
            outside = max(int(end["device_used"][last] - end["reserved"][last]), 0)
    recent = int(peak["allocated"][-_RECENT_STEPS:].max())
    reserved = int(end["reserved"][-1]) if "reserved" in end else None
    return capacity - outside - recent, None if reserved is None else capacity - outside - reserved


def _steps_until_full(rate: Rate | None, headroom: int | None) -> int | None:
    if rate is None or headroom is None:
        return None
    return max(int(headroom / rate.slope.value), 0)


def _survivors_by_age(
    kept: DeviceRetention, steps_told: npt.NDArray[np.int64]
) -> tuple[Survivors, ...]:
    """Ages in ranges that double: 0, 1, 2-3, 4-7, …; of steps told as one, that of the first."""
    if not len(kept.ordinal):
        return ()
    completed = (np.cumsum(steps_told) - steps_told)[kept.ordinal]
    age = completed[-1] - completed
    alive = kept.survivor_bytes.sum(axis=1)
    result = []
    youngest = 0
    while youngest <= int(age[0]):
        oldest = min(max(2 * youngest - 1, youngest), int(age[0]))
        born = alive[(age >= youngest) & (age <= oldest)]
        result.append(Survivors(youngest, oldest, int(born.sum()) / (oldest - youngest + 1)))
        youngest = oldest + 1
    return tuple(result)
