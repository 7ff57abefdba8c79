"""What stays in use from step to step, by where it was born, and what of each step survives."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.analysis.categories import CATEGORY_NAMES, Categories
from gpumemtrace.analysis.lines import Lines
from gpumemtrace.marks import begins_at_step
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = ["BirthGroup", "DeviceRetention", "RetentionFinder", "allocs_before"]


@dataclass(frozen=True)
class BirthGroup:
    """Blocks born alike: in a phase (None = outside of any), of a category."""

    phase: str | None
    category: str


@dataclass(frozen=True)
class DeviceRetention:
    """What one device kept at the end of its completed steps.

    Bytes are allocated ones: sizes rounded up to 512. All that follows has a row per step told; of
    a run of more than 16,384 steps only every second (fourth, …) one is.

    ``ordinal``: int64, steps completed before it; ``retained_bytes``: int64 (rows, groups), in use
    at its end; ``survivor_bytes``: int64 (rows, groups), born in it (and in the steps left out
    before it) and in use at the end of the trace.
    ``freed_bytes``: int64 (groups, bins), freed at an age of 2^bin to 2^(bin + 1) - 1 steps.
    ``live``: columns of the blocks in use at the end of the trace: ``alloc`` (number among the
    allocs), ``size_bytes``, ``ordinal`` (of the step of birth), ``group``, ``thread``,
    ``category`` (index into `CATEGORY_NAMES`).
    """

    device: int
    groups: tuple[BirthGroup, ...]
    ordinal: npt.NDArray[np.int64]
    retained_bytes: npt.NDArray[np.int64]
    survivor_bytes: npt.NDArray[np.int64]
    freed_bytes: npt.NDArray[np.int64]
    live: dict[str, npt.NDArray[np.int64]]

    def by_phase(self) -> DeviceRetention:
        """Return the same with the categories of each phase in one group, ``any``.

        What a block is taken for may depend on its fate: growth is judged without it.
        """
        number: dict[str | None, int] = {}
        merged = np.array(
            [number.setdefault(group.phase, len(number)) for group in self.groups], np.int64
        )
        order = np.argsort(merged, kind="stable")
        first = np.searchsorted(merged[order], np.arange(len(number)))

        def sums(groups: npt.NDArray[np.int64], axis: int) -> npt.NDArray[np.int64]:
            return np.add.reduceat(groups.take(order, axis), first, axis)

        return replace(
            self,
            groups=tuple(BirthGroup(phase, "any") for phase in number),
            retained_bytes=sums(self.retained_bytes, 1),
            survivor_bytes=sums(self.survivor_bytes, 1),
            freed_bytes=sums(self.freed_bytes, 0),
            live=self.live | {"group": merged[self.live["group"]]},
        )


class RetentionFinder:
    """Follows the live blocks as batches go by."""

    def __init__(self, trace: TraceData, categories: Categories | None = None) -> None:
        """Prepare for one pass over ``trace``; without ``categories`` all blocks are unknown."""
        self._phase_names = trace.phase_names
        self._category_id = np.zeros(0, np.uint8)
        if categories is not None:
            self._category_id = categories.category_id[allocs_before(trace) :]
        self._ledger = _core.RetentionLedger()
        self._marks_before = 0
        self._is_first = True

    def begin(self, initial: dict[int, dict[str, int]]) -> None:
        """Take nothing: blocks from before the first record are not known one by one."""

    def feed(self, batch: Batch, lines: Lines | None = None) -> None:
        """Take the next batch."""
        if self._is_first:
            self._is_first = False
            self._marks_before = int(begins_at_step(batch))
        category = self._category_id[self._ledger.allocs :]
        self._ledger.feed(batch.raw, batch.phase, category)

    def finish(self) -> tuple[DeviceRetention, ...]:
        """Return what was found, for each device that had a block."""
        groups = np.array(self._ledger.groups(), np.int64).reshape(-1, 3)
        mark, retained = self._ledger.rows()
        live = {name: column.astype(np.int64) for name, column in self._ledger.live().items()}
        live["ordinal"] = live.pop("birth") - self._marks_before
        live["category"] = groups[live["group"], 2]
        ordinal = mark - self._marks_before
        # A mark that only begins the first step ends none.
        retained, ordinal = retained[ordinal >= 0], ordinal[ordinal >= 0]
        # The row that tells of each birth; one past the end for those of the unfinished step.
        row = np.searchsorted(ordinal, live["ordinal"])
        survivors = np.zeros((len(ordinal) + 1, len(groups)), np.int64)
        np.add.at(survivors, (row, live["group"]), live["size_bytes"])
        freed = self._ledger.freed()
        result = []
        for device in np.unique(groups[:, 0][groups[:, 0] >= 0]).tolist():
            mine = np.flatnonzero(groups[:, 0] == device)
            is_mine = np.isin(live["group"], mine)
            its_live = {name: column[is_mine] for name, column in live.items()}
            its_live["group"] = np.searchsorted(mine, its_live["group"])
            result.append(
                DeviceRetention(
                    device=device,
                    groups=tuple(self._group(*groups[i, 1:].tolist()) for i in mine),
                    ordinal=ordinal,
                    retained_bytes=retained[:, mine],
                    survivor_bytes=survivors[:-1, mine],
                    freed_bytes=freed[mine],
                    live=its_live,
                )
            )
        return tuple(result)

    def _group(self, phase: int, category: int) -> BirthGroup:
        name = CATEGORY_NAMES[category] if category < len(CATEGORY_NAMES) else "unknown"
        return BirthGroup(self._phase_names[phase] if phase >= 0 else None, name)


def allocs_before(trace: TraceData) -> int:
    """Return the allocs of the whole trace that lie before this slice."""
    allocs = 0
    if trace.whole is not trace:
        for batch in trace.chunks(lead_in=True):
            if not batch.is_lead_in:
                break
            allocs += int(np.count_nonzero(batch.raw["kind"] == Kind.ALLOC))
    return allocs
