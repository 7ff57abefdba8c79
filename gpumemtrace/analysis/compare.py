"""Two runs, or two parts of one, side by side: aligned by device, phase and step, not by time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from gpumemtrace.analysis.allocation_groups import (
    AllocationGroup,
    AllocationGroupFinder,
    GroupUse,
)
from gpumemtrace.analysis.answers import DeviceAnswers, find_answers
from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.analysis.endings import OutOfMemory, find_out_of_memory
from gpumemtrace.analysis.group_differences import GroupDifference, compare_groups
from gpumemtrace.analysis.lines import LINES
from gpumemtrace.analysis.owners import OWNERS
from gpumemtrace.analysis.phases import PhaseUse
from gpumemtrace.analysis.summary import DeviceSummary, Summary
from gpumemtrace.trace_data import TraceData

__all__ = [
    "COMPARED_BY",
    "Comparison",
    "DeviceComparison",
    "Difference",
    "GroupDifference",
    "PhaseDifference",
    "RecordDifference",
    "compare_traces",
]

COMPARED_BY = ("category", "phase", *OWNERS)

# What of the run record makes two runs different, not merely another time or place.
_RECORD_KEYS = (
    "script",
    "argv",
    "torch",
    "cuda",
    "devices",
    "allocator",
    "world_size",
    "environment",
    "simulated",
    "training",
)
# Says where the run was, or what it was found to be, not how it was set up.
_RECORD_LEAVES_IGNORED = {"uuid", "approximations", "pci_bus_id", "index"}


@dataclass(frozen=True)
class Difference:
    """A figure in A and in B; None where one of them does not have it."""

    a: float | None
    b: float | None

    @property
    def change(self) -> float | None:
        """B - A."""
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def share(self) -> float | None:
        """The change as a part of A: 0.08 = 8 % more."""
        change = self.change
        return None if change is None or not self.a else change / self.a

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {"a": self.a, "b": self.b, "change": self.change, "share": self.share}


@dataclass(frozen=True)
class PhaseDifference:
    """One phase on one device. ``kept_bytes``: allocated less freed, ``time_s``: each per visit.

    ``time_s`` is None where times say nothing, see `Comparison.no_times`.
    """

    name: str
    peak_allocated_bytes: Difference
    peak_reserved_bytes: Difference
    kept_bytes: Difference
    time_s: Difference | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "name": self.name,
            "peak_allocated_bytes": self.peak_allocated_bytes.to_dict(),
            "peak_reserved_bytes": self.peak_reserved_bytes.to_dict(),
            "kept_bytes": self.kept_bytes.to_dict(),
            "time_s": None if self.time_s is None else self.time_s.to_dict(),
        }


@dataclass(frozen=True)
class RecordDifference:
    """An entry of the run record that matters and is not the same."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True)
class DeviceComparison:
    """One device.

    ``peaks``: line name -> bytes; ``step_peak_bytes``: allocated, median over steps;
    ``category_bytes``: category -> bytes at the peak; ``by``: how the peak is grouped beyond that;
    ``group_bytes``: group -> bytes at the peak, which add up to it on both sides; ``growth``: bytes
    per step; ``phases``: in the order of B, then those only in A; ``groups``: what a step allocates
    more or less, the largest change in bytes first; ``out_of_memory``: of A and of B, None where
    every request was served.
    """

    device: int
    peaks: dict[str, Difference]
    step_peak_bytes: Difference
    category_bytes: dict[str, Difference]
    growth: Difference
    phases: tuple[PhaseDifference, ...]
    groups: tuple[GroupDifference, ...]
    out_of_memory: tuple[OutOfMemory | None, OutOfMemory | None] = (None, None)
    by: str | None = None
    group_bytes: dict[str, Difference] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "device": self.device,
            "peak_bytes": {name: peak.to_dict() for name, peak in self.peaks.items()},
            "step_peak_bytes": self.step_peak_bytes.to_dict(),
            "categories_at_peak": {n: d.to_dict() for n, d in self.category_bytes.items()},
            "at_peak_by": None
            if self.by is None
            else {
                "by": self.by,
                "groups": {name: size.to_dict() for name, size in self.group_bytes.items()},
            },
            "growth_bytes_per_step": self.growth.to_dict(),
            "phases": [phase.to_dict() for phase in self.phases],
            "groups": [group.to_dict() for group in self.groups],
            "out_of_memory": {
                side: None if found is None else found.to_dict()
                for side, found in zip("ab", self.out_of_memory, strict=True)
            },
        }


@dataclass(frozen=True)
class Comparison:
    """See `compare_traces`. ``record``: how the runs were not alike.

    ``step_time_s``: the median, None where times say nothing; ``no_times``: then the reason.
    """

    a: Summary
    b: Summary
    steps: Difference
    step_time_s: Difference | None
    no_times: str | None
    devices: tuple[DeviceComparison, ...]
    record: tuple[RecordDifference, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        return {
            "a": self.a.path,
            "b": self.b.path,
            "steps": self.steps.to_dict(),
            "step_time_s": None if self.step_time_s is None else self.step_time_s.to_dict(),
            "no_times": self.no_times,
            "devices": [device.to_dict() for device in self.devices],
            "run_record": [asdict(entry) for entry in self.record],
        }


@dataclass(frozen=True)
class _Side:
    trace: TraceData
    summary: Summary
    detailed_steps: int
    step_time_s: float | None
    groups: dict[AllocationGroup, GroupUse]
    devices: dict[int, DeviceAnswers]

    def peak_groups(self, device: int, by: str) -> dict[str, int] | None:
        """Bytes at the peak by group; None if the device is not there."""
        if device not in self.devices:
            return None
        groups = self.devices[device].peak_live_set(self.trace).group_by(by)
        return {group.name: group.size_bytes for group in groups}

    def out_of_memory(self, device: int) -> OutOfMemory | None:
        return find_out_of_memory(self.trace, device)


def compare_traces(a: TraceData, b: TraceData, *, by: str | None = None) -> Comparison:
    """Compare two traces, or two slices (``trace.slice(steps=…)``), in two passes over each.

    ``by``: one of `COMPARED_BY`: what is in use at the peaks by this too; by module or site also
    what a step allocates. That takes another pass. Raises `ValueError` for another.
    """
    if by is not None and by not in COMPARED_BY:
        raise ValueError(f"by must be one of {', '.join(COMPARED_BY)}, not {by!r}")
    first, second = _read(a, by), _read(b, by)
    numbers = sorted(first.devices.keys() | second.devices.keys())
    no_times = _why_no_times(first.summary, second.summary)
    return Comparison(
        a=first.summary,
        b=second.summary,
        steps=Difference(first.summary.steps, second.summary.steps),
        step_time_s=None if no_times else Difference(first.step_time_s, second.step_time_s),
        no_times=no_times,
        devices=tuple(
            _compare_device(number, first, second, by, times_count=no_times is None)
            for number in numbers
        ),
        record=_compare_records(first.summary.run_record, second.summary.run_record),
    )


def _why_no_times(a: Summary, b: Summary) -> str | None:
    """Return why times can't be compared; None if they can."""
    simulated = [name for name, side in (("A", a), ("B", b)) if side.simulated is not None]
    if not simulated:
        return None
    which = "A and B are" if len(simulated) == 2 else f"{simulated[0]} is"
    return f"{which} simulated, and simulated times are a CPU's, not a GPU's"


def _read(trace: TraceData, by: str | None) -> _Side:
    groups = AllocationGroupFinder(trace, by=by if by in OWNERS else None)
    answers = find_answers(trace, groups)
    steps = trace.steps.singles
    durations = steps.end_ns - steps.start_ns
    return _Side(
        trace=trace,
        summary=answers.summary,
        detailed_steps=int(
            np.count_nonzero(~answers.summary.check.aged.covers(trace.steps.number))
        ),
        step_time_s=float(np.median(durations)) / 1e9 if len(steps) else None,
        groups=groups.finish(),
        devices={device.summary.device: device for device in answers.devices},
    )


def _compare_device(
    number: int, a: _Side, b: _Side, by: str | None, *, times_count: bool
) -> DeviceComparison:
    all_a, all_b = a.devices.get(number), b.devices.get(number)
    of_a = None if all_a is None else all_a.summary
    of_b = None if all_b is None else all_b.summary
    return DeviceComparison(
        device=number,
        peaks={line: Difference(_peak(of_a, line), _peak(of_b, line)) for line in LINES},
        step_peak_bytes=Difference(_step_peak(of_a), _step_peak(of_b)),
        category_bytes=_compare_categories(all_a, all_b),
        growth=Difference(_growth(all_a), _growth(all_b)),
        phases=_compare_phases(of_a, of_b, times_count=times_count),
        groups=compare_groups(
            number, a.groups, b.groups, a_steps=a.detailed_steps, b_steps=b.detailed_steps
        ),
        out_of_memory=(a.out_of_memory(number), b.out_of_memory(number)),
        by=by,
        group_bytes={} if by is None else _compare_peak_groups(number, a, b, by),
    )


def _compare_peak_groups(number: int, a: _Side, b: _Side, by: str) -> dict[str, Difference]:
    """By group what is in use at the peak of each, the largest change first."""
    of_a, of_b = a.peak_groups(number, by), b.peak_groups(number, by)
    names = (of_a or {}) | (of_b or {})
    found = [
        (
            name,
            Difference(
                None if of_a is None else of_a.get(name, 0),
                None if of_b is None else of_b.get(name, 0),
            ),
        )
        for name in names
    ]
    found.sort(key=lambda one: (-abs(one[1].change or 0), -max(one[1].a or 0, one[1].b or 0)))
    return dict(found)


def _peak(device: DeviceSummary | None, line: str) -> int | None:
    peak = None if device is None else device.peaks.lines[line]
    return None if peak is None else peak.size_bytes


def _step_peak(device: DeviceSummary | None) -> float | None:
    return None if device is None else device.peaks.steps.median_peak_bytes


def _growth(device: DeviceAnswers | None) -> float | None:
    return None if device is None or device.growth is None else device.growth.bytes_per_step


def _compare_categories(a: DeviceAnswers | None, b: DeviceAnswers | None) -> dict[str, Difference]:
    """By category what is in use at the peak of each; a device without any has nothing there."""
    of_a = {} if a is None else a.category_bytes
    of_b = {} if b is None else b.category_bytes
    return {
        name: Difference(
            None if a is None else of_a.get(name, 0), None if b is None else of_b.get(name, 0)
        )
        for name in CATEGORY_NAMES
        if name in of_a or name in of_b
    }


def _compare_phases(
    a: DeviceSummary | None, b: DeviceSummary | None, *, times_count: bool
) -> tuple[PhaseDifference, ...]:
    uses_a, uses_b = _uses(a), _uses(b)
    names = [*uses_b, *(name for name in uses_a if name not in uses_b)]
    return tuple(
        _compare_phase(name, uses_a.get(name), uses_b.get(name), times_count=times_count)
        for name in names
    )


def _uses(device: DeviceSummary | None) -> dict[str, PhaseUse]:
    if device is None:
        return {}
    return {use.name: use for use in device.phases.phases if use.count or use.time_s}


def _compare_phase(
    name: str, a: PhaseUse | None, b: PhaseUse | None, *, times_count: bool
) -> PhaseDifference:
    def peak(use: PhaseUse | None, line: str) -> int | None:
        return None if use is None else use.peak[line]

    def each(use: PhaseUse | None, total: float) -> float | None:
        return None if use is None else total / max(use.count, 1)

    return PhaseDifference(
        name=name,
        peak_allocated_bytes=Difference(peak(a, "allocated"), peak(b, "allocated")),
        peak_reserved_bytes=Difference(peak(a, "reserved"), peak(b, "reserved")),
        kept_bytes=Difference(
            each(a, a.net_allocated_bytes if a else 0), each(b, b.net_allocated_bytes if b else 0)
        ),
        time_s=Difference(each(a, a.time_s if a else 0), each(b, b.time_s if b else 0))
        if times_count
        else None,
    )


def _compare_records(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[RecordDifference, ...]:
    leaves_a: dict[str, Any] = {}
    leaves_b: dict[str, Any] = {}
    for key in _RECORD_KEYS:
        leaves_a |= _leaves(key, a.get(key))
        leaves_b |= _leaves(key, b.get(key))
    return tuple(
        RecordDifference(key, leaves_a.get(key), leaves_b.get(key))
        for key in dict.fromkeys([*leaves_a, *leaves_b])
        if leaves_a.get(key) != leaves_b.get(key)
    )


def _leaves(key: str, value: Any) -> dict[str, Any]:
    """Nested objects as one level: ``allocator.settings``, ``devices.0.name``."""
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {key: value}
    found: dict[str, Any] = {}
    for name, inner in value.items():
        if name not in _RECORD_LEAVES_IGNORED:
            found |= _leaves(f"{key}.{name}", inner)
    return found
