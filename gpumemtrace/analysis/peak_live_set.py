"""What owns the peak: the blocks in use at that instant, and each step's peak in groups.

The instants are found in one pass, running sums per group are read out at them in another; the sums
are equal to the peak, 0 bytes off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.aged import find_aged
from gpumemtrace.analysis.categories import CATEGORY_NAMES, Categories, find_categories
from gpumemtrace.analysis.lines import ALLOCATOR_LINES, feed_lines, known_lines
from gpumemtrace.analysis.live_set import GROUPINGS, LiveGroup, LiveSet, sum_groups
from gpumemtrace.analysis.owners import OWNERS, Owners, find_owners
from gpumemtrace.analysis.peak_composition import PeakComposer, PeakComposition
from gpumemtrace.analysis.peak_places import PeakPlaceFinder, PeakPlaces
from gpumemtrace.analysis.rest import NOT_SEEN, SUMMARISED, split_rest
from gpumemtrace.html_tables import html_table
from gpumemtrace.trace_data import TraceData
from gpumemtrace.units import format_bytes

__all__ = ["PeakLiveSet", "StepPeaks", "find_peak_live_set", "live_set_at"]

# What of a line is no block that the trace knows.
_REST_NAMES = {
    "not_seen": NOT_SEEN,
    "summarised": SUMMARISED,
    "pending_free": "waiting for another stream",
    "cached": "cached by the allocator",
}


@dataclass(frozen=True)
class StepPeaks:
    """Each step at its own peak; a row per step, in order of time, the unfinished last one too.

    ``number``, ``size_bytes``, ``time_ns``, ``event`` int64; ``phase`` int32, the phase that set
    the peak, index into `Trace.phase_names`, -1 = none; ``count``: how many steps a row stands for,
    see `gpumemtrace.marks.Steps`. ``category_bytes``: int64 array (steps, 8),
    columns `CATEGORY_NAMES`; ``phase_bytes``: int64 array (steps, phases + 1), by phase of birth,
    blocks born outside of phases first. ``rest_bytes``: what is no block that the trace knows, see
    `PeakLiveSet.rest_bytes`. Each row of either, with its rest, adds up to ``size_bytes``.
    """

    number: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]
    time_ns: npt.NDArray[np.int64]
    event: npt.NDArray[np.int64]
    phase: npt.NDArray[np.int32]
    count: npt.NDArray[np.int64]
    category_bytes: npt.NDArray[np.int64]
    phase_bytes: npt.NDArray[np.int64]
    rest_bytes: dict[str, npt.NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True)
class PeakLiveSet:
    """The peak of a line on one device, over the run or in one step, and what was in use then.

    ``phase``: the innermost one, None outside of any. ``is_summarised``: the step was, to keep the
    file small, so that the blocks that came and went within it are not listed. ``owners``: who made
    ``blocks``.
    ``rest_bytes``: parts of the line that are no block of ``blocks``, by name: ``not_seen`` (the
    line says more than the blocks that the trace has seen: some came before it, or were lost in a
    gap; negative where frees were lost), ``summarised`` (of blocks that came and went within a step
    that was summarised; only where there is such a step), and for the lines *active* and *reserved*
    ``pending_free`` and ``cached``. ``steps``: every step's own peak.
    """

    device: int
    line: str
    size_bytes: int
    time_ns: int
    event: int
    step: int
    phase: str | None
    is_summarised: bool
    blocks: LiveSet
    owners: Owners
    rest_bytes: dict[str, int]
    steps: StepPeaks
    phase_names: tuple[str, ...]

    @property
    def named_rest_bytes(self) -> dict[str, int]:
        """``rest_bytes`` that are not 0, by the names that views have for them."""
        return {_REST_NAMES[name]: size for name, size in self.rest_bytes.items() if size}

    def group_by(self, by: str) -> tuple[LiveGroup, ...]:
        """Return the peak in groups, largest first; their bytes add up to ``size_bytes``.

        ``by``: ``"category"``, ``"phase"`` (of birth), ``"step"`` (of birth: this step, before it,
        before the trace), ``"size"`` (of the block), ``"size_class"``, ``"module"`` or ``"site"``
        (the line that allocated), see `gpumemtrace.analysis.owners`. Raises `ValueError` for
        another.
        """
        of_requests = self.line == "requested"
        if by in OWNERS:
            groups = self._group_by_owner(by, of_requests=of_requests)
        else:
            groups = self.blocks.group_by(
                by, step=self.step, phase_names=self.phase_names, of_requests=of_requests
            )
        rest = [LiveGroup(name, size, None) for name, size in self.named_rest_bytes.items()]
        return tuple(sorted([*groups, *rest], key=lambda group: -group.size_bytes))

    def _group_by_owner(self, by: str, *, of_requests: bool) -> tuple[LiveGroup, ...]:
        blocks, owners = self.blocks, self.owners
        size = blocks.requested_bytes if of_requests else blocks.allocated_bytes
        return sum_groups(*owners.keys(by), size)

    def _repr_html_(self) -> str:
        """Show itself in a notebook: what owns the peak, by category."""
        where = f"{self.phase}, step {self.step}" if self.phase else f"step {self.step}"
        title = (
            f"{self.line} peak of cuda:{self.device}: {format_bytes(self.size_bytes)} in {where}"
        )
        rows = [
            (
                group.name,
                format_bytes(group.size_bytes),
                f"{group.size_bytes / max(self.size_bytes, 1):.1%}",
                "" if group.blocks is None else f"{group.blocks:,}",
            )
            for group in self.group_by("category")
        ]
        return html_table(title, ["category", "bytes", "part", "blocks"], rows)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        steps, phases = self.steps, (None, *self.phase_names)
        return {
            "device": self.device,
            "line": self.line,
            "bytes": self.size_bytes,
            "time_s": self.time_ns / 1e9,
            "event": self.event,
            "step": self.step,
            "phase": self.phase,
            "is_summarised": self.is_summarised,
            "groups": {
                by: [
                    {"name": group.name, "bytes": group.size_bytes, "blocks": group.blocks}
                    for group in self.group_by(by)
                ]
                for by in (*GROUPINGS, *self.owners.known)
            },
            "rest_bytes": dict(self.rest_bytes),
            "steps": {
                "number": steps.number.tolist(),
                "count": steps.count.tolist(),
                "bytes": steps.size_bytes.tolist(),
                "phase": [phases[i + 1] for i in steps.phase.tolist()],
                "category_bytes": _by_name(CATEGORY_NAMES, steps.category_bytes),
                "phase_bytes": _by_name(("no phase", *self.phase_names), steps.phase_bytes),
                "rest_bytes": {name: part.tolist() for name, part in steps.rest_bytes.items()},
            },
        }


def find_peak_live_set(
    trace: TraceData,
    *,
    step: int | None = None,
    device: int | None = None,
    line: str = "allocated",
    categories: Categories | None = None,
) -> PeakLiveSet:
    """Find the peak of ``line`` (in ``step`` only, if given) and what was in use at that instant.

    ``device``: by default the one with the highest peak. ``categories``: of this trace, where the
    caller has them already. Raises `ValueError` for a line, step or device that the trace has not.
    """
    if line not in ALLOCATOR_LINES:
        raise ValueError(f"line must be one of {', '.join(ALLOCATOR_LINES)}, not {line!r}")
    finder = PeakPlaceFinder(line)
    stream = feed_lines(trace, finder)
    places = _choose_device(finder.finish(), device, line)
    if line not in known_lines(stream, places.device, has_samples=False):
        raise ValueError(f"{line} memory is not known: the trace has no readings of the counters")
    chosen = _choose_step(places, step, line)
    if categories is None:
        categories = find_categories(trace)
    composer = PeakComposer(
        trace,
        [places],
        categories,
        of_requests=line == "requested",
        look_into={places.device: int(places.position[chosen])},
    )
    for batch in trace.chunks(lead_in=True):
        composer.feed(batch)
    return live_set_at(trace, places, composer.finish()[places.device], chosen, line=line)


def live_set_at(
    trace: TraceData, places: PeakPlaces, made_of: PeakComposition, chosen: int, *, line: str
) -> PeakLiveSet:
    """Return what was in use at place ``chosen``, the one that ``made_of`` was to look into."""
    assert made_of.blocks is not None
    aged = find_aged(trace)
    is_aged = aged.covers(places.number)
    rest = _rest(places.lines, made_of.category_bytes.sum(axis=1), line)
    if aged:
        summarised, rest["not_seen"] = split_rest(rest["not_seen"], is_aged)
        rest["summarised"] = summarised
    phase = int(places.phase[chosen])
    return PeakLiveSet(
        device=places.device,
        line=line,
        size_bytes=int(places.lines[line][chosen]),
        time_ns=int(places.time_ns[chosen]),
        event=int(places.event[chosen]),
        step=int(places.number[chosen]),
        phase=trace.phase_name(phase),
        is_summarised=bool(is_aged[chosen]),
        blocks=made_of.blocks,
        owners=find_owners(trace, made_of.blocks.alloc, made_of.blocks.allocated_bytes),
        rest_bytes={name: int(part[chosen]) for name, part in rest.items()},
        steps=StepPeaks(
            number=places.number,
            size_bytes=places.lines[line],
            time_ns=places.time_ns,
            event=places.event,
            phase=places.phase.astype(np.int32),
            count=trace.marks.counts_of(places.number),
            category_bytes=made_of.category_bytes,
            phase_bytes=made_of.phase_bytes,
            rest_bytes=rest,
        ),
        phase_names=trace.phase_names,
    )


def _choose_device(found: tuple[PeakPlaces, ...], device: int | None, line: str) -> PeakPlaces:
    if not found:
        raise ValueError("the trace has no events: nothing was allocated on any GPU")
    if device is None:
        return max(found, key=lambda places: int(places.lines[line].max()))
    for places in found:
        if places.device == device:
            return places
    others = ", ".join(f"cuda:{places.device}" for places in found)
    raise ValueError(f"cuda:{device} has no events in this trace: it has {others}")


def _choose_step(places: PeakPlaces, step: int | None, line: str) -> int:
    mine = np.ones(len(places.number), np.bool_) if step is None else places.number == step
    if not mine.any():
        first, last = int(places.number.min()), int(places.number.max())
        raise ValueError(f"no step {step}: the trace has steps {first} to {last}")
    rows = np.flatnonzero(mine)
    return int(rows[np.argmax(places.lines[line][rows])])


def _rest(
    lines: dict[str, npt.NDArray[np.int64]], in_blocks: npt.NDArray[np.int64], line: str
) -> dict[str, npt.NDArray[np.int64]]:
    base = "requested" if line == "requested" else "allocated"
    rest = {"not_seen": lines[base] - in_blocks}
    if line in ("active", "reserved"):
        rest["pending_free"] = lines["active"] - lines["allocated"]
    if line == "reserved":
        rest["cached"] = lines["reserved"] - lines["active"]
    return rest


def _by_name(names: tuple[str, ...], columns: npt.NDArray[np.int64]) -> dict[str, list[int]]:
    return {
        name: column.tolist() for name, column in zip(names, columns.T, strict=True) if column.any()
    }
