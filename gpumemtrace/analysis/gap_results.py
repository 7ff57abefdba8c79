"""What `gpumemtrace.analysis.gaps` finds: the gaps between the lines and their extremes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "GAPS",
    "QUANTITIES",
    "DeviceGaps",
    "Extreme",
    "Gaps",
    "OrderBreak",
    "OutsideChange",
    "Place",
]

# The gaps, from what the program asked for up to the whole card; they add up to the capacity.
GAPS = (
    "rounding",
    "pending",
    "cached",
    "outside",
    "others",
    "unattributed",
    "device_free",
)
# What `DeviceGaps.highest` has; of the last two the lowest is kept.
QUANTITIES = (
    "requested",
    "allocated",
    "active",
    "reserved",
    "device_used",
    "rounding",
    "pending",
    "cached",
    "outside",
    "device_free",
    "device_free_with_cached",
)


@dataclass(frozen=True)
class Place:
    """Where in the run: ``event`` allocs and frees came before; ``phase`` None outside of any."""

    time_ns: int
    event: int
    step: int
    phase: tuple[str, ...] | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "time_s": self.time_ns / 1e9,
            "event": self.event,
            "step": self.step,
            "phase": None if self.phase is None else "/".join(self.phase),
        }


@dataclass(frozen=True)
class Gaps:
    """The lines of a device at one instant and what lies between them, in bytes; None: not known.

    ``requested + rounding + pending + cached`` is ``reserved``; that and ``outside + others +
    unattributed`` is ``device_used``; that and ``device_free`` is ``capacity``, wherever they are
    known. ``own_is_known`` False: ``outside`` holds other processes too.
    """

    requested: int
    allocated: int
    active: int
    reserved: int | None
    device_used: int | None
    capacity: int | None
    rounding: int
    pending: int
    cached: int | None
    outside: int | None
    others: int | None
    unattributed: int | None
    device_free: int | None
    own_is_known: bool

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return asdict(self)


@dataclass(frozen=True)
class Extreme:
    """The highest (or lowest) value of a quantity, where it was reached first, the gaps then."""

    size_bytes: int
    place: Place
    gaps: Gaps

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {"bytes": self.size_bytes} | self.place.to_dict() | {"gaps": self.gaps.to_dict()}


@dataclass(frozen=True)
class OutsideChange:
    """What lies outside PyTorch was found changed between two samples.

    ``after``: the sample that shows it; ``since_ns``: the time of the one before. ``phase``: in
    which most of the time between them lies, () outside of any; ``possible_phases``: all of that
    time. The first is the baseline: CUDA context and modules as they were when first looked at.
    """

    since_ns: int
    after: Place
    phase: tuple[str, ...]
    possible_phases: tuple[tuple[str, ...], ...]
    outside_bytes: int
    change_bytes: int
    gaps: Gaps

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "since_s": self.since_ns / 1e9,
            "after": self.after.to_dict(),
            "phase": "/".join(self.phase) or None,
            "possible_phases": ["/".join(path) or None for path in self.possible_phases],
            "outside_bytes": self.outside_bytes,
            "change_bytes": self.change_bytes,
            "gaps": self.gaps.to_dict(),
        }


@dataclass(frozen=True)
class OrderBreak:
    """A line that lies above the next one.

    ``pair``: such as ``reserved>device_used``; ``reason``: ``in_call`` (a cache miss: the alloc is
    recorded just before the segment that it made), ``events_lost`` (lines are uncertain after a
    gap), ``threads`` (the counters were read while other threads allocated), ``sampling_lag``
    (reserved changed since, or around, the sample of device used), ``counters`` (they contradict
    each other as they were read), ``expandable`` (segments that grow by mapping), ``unexplained``.
    ``records``: how many records show it; ``most_bytes``: by how much at most; ``first``: the
    first of them, with the two values.
    """

    pair: str
    reason: str
    records: int
    most_bytes: int
    first: tuple[tuple[Place, int, int], ...]

    @property
    def is_harmless(self) -> bool:
        """Whether it only shows the order in which things are recorded."""
        return self.reason in ("in_call", "sampling_lag")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "pair": self.pair,
            "reason": self.reason,
            "records": self.records,
            "most_bytes": self.most_bytes,
            "first": [
                place.to_dict() | {"lower_bytes": lower, "upper_bytes": upper}
                for place, lower, upper in self.first
            ],
        }


@dataclass(frozen=True)
class DeviceGaps:
    """The gaps of one device over the run.

    ``highest``: quantity (see `QUANTITIES`) -> where it was highest; of ``device_free`` and
    ``device_free_with_cached`` (what would be free if the cache were flushed) the lowest. Missing:
    not known. ``phases``: path -> the same for the records of that phase, the values with which
    it began included; () = no phase. ``outside``: each change of what lies outside PyTorch.
    ``breaks``: where the order of the lines does not hold. Stretches in which the lines are
    uncertain count for nothing but ``breaks``.
    """

    device: int
    own_is_known: bool
    highest: dict[str, Extreme]
    phases: dict[tuple[str, ...], dict[str, Extreme]]
    outside: tuple[OutsideChange, ...]
    breaks: tuple[OrderBreak, ...]

    @property
    def baseline(self) -> OutsideChange | None:
        """The first reading of what lies outside: CUDA context and modules; None without any."""
        return self.outside[0] if self.outside else None

    @property
    def outside_by_phase(self) -> dict[tuple[str, ...], int]:
        """Phase path (() = none) -> by how much what lies outside grew in it, baseline left out."""
        grown: dict[tuple[str, ...], int] = {}
        for change in self.outside[1:]:
            grown[change.phase] = grown.get(change.phase, 0) + change.change_bytes
        return grown

    def to_short_dict(self) -> dict[str, Any]:
        """Return the peak, the headroom and what lies outside, as JSON-like values."""
        at_peak, outside = self.highest.get("allocated"), self.highest.get("outside")
        return {
            "own_is_known": self.own_is_known,
            "at_peak": None if at_peak is None else at_peak.gaps.to_dict(),
            "lowest": {
                name: self.highest[name].to_dict() if name in self.highest else None
                for name in ("device_free", "device_free_with_cached")
            },
            "outside": {
                "at_first_bytes": None if self.baseline is None else self.baseline.outside_bytes,
                "highest_bytes": None if outside is None else outside.size_bytes,
                "change_bytes": {
                    "/".join(path): size for path, size in self.outside_by_phase.items() if size
                },
            },
            "order_breaks": [found.to_dict() for found in self.breaks],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        return {
            "device": self.device,
            "own_is_known": self.own_is_known,
            "extremes": {name: extreme.to_dict() for name, extreme in self.highest.items()},
            "phases": [
                {
                    "phase": "/".join(path) or None,
                    "outside_change_bytes": self.outside_by_phase.get(path, 0),
                    "extremes": {name: extreme.size_bytes for name, extreme in highest.items()},
                    "at_peak": highest["allocated"].gaps.to_dict(),
                }
                for path, highest in self.phases.items()
            ],
            "outside": [change.to_dict() for change in self.outside],
            "order_breaks": [found.to_dict() for found in self.breaks],
        }
