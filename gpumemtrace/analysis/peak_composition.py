"""What each step's peak is made of, on every device: sums by category and by phase of birth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.analysis.categories import CATEGORY_NAMES, Categories
from gpumemtrace.analysis.live_set import LiveSet
from gpumemtrace.analysis.peak_places import PeakPlaces
from gpumemtrace.records import Batch
from gpumemtrace.trace_data import TraceData

__all__ = ["PeakComposer", "PeakComposition"]


@dataclass(frozen=True)
class PeakComposition:
    """One device; a row per place that was asked for.

    ``category_bytes``: int64 (places, 8), columns `CATEGORY_NAMES`; ``phase_bytes``: int64 (places,
    phases + 1), by phase of birth, blocks born outside of phases first. ``highest_without`` and
    ``highest_with_half``: int64 (8), as high as the blocks together would have been at most if a
    category had taken nothing, or half as much. ``blocks``: those in use at the record that was to
    be looked into, None without one.
    """

    category_bytes: npt.NDArray[np.int64]
    phase_bytes: npt.NDArray[np.int64]
    highest_without: npt.NDArray[np.int64]
    highest_with_half: npt.NDArray[np.int64]
    blocks: LiveSet | None


@dataclass
class _Device:
    """The sums read out so far."""

    places: PeakPlaces
    by_category: list[npt.NDArray[np.int64]] = field(default_factory=list)
    by_phase: list[npt.NDArray[np.int64]] = field(default_factory=list)


class PeakComposer:
    """Reads running sums out at places that an earlier pass found; feed it the lead-in too."""

    def __init__(
        self,
        trace: TraceData,
        places: Sequence[PeakPlaces],
        categories: Categories,
        *,
        of_requests: bool = False,
        look_into: Mapping[int, int],
    ) -> None:
        """Prepare for one pass; ``look_into``: device -> record whose blocks are wanted."""
        self._phases = len(trace.phase_names)
        self._groups = _core.LiveGroups(categories.category_id, self._phases, of_requests)
        self._devices = {found.device: _Device(found) for found in places}
        self._looks = sorted((record, device) for device, record in look_into.items())
        self._blocks: dict[int, LiveSet] = {}
        self._look_until(-1)  # before the first record
        self._done = 0  # records of the trace or slice
        for device in self._devices.values():
            # Steps from before the device's first record have nothing in use.
            missing = int(np.count_nonzero(device.places.position < 0))
            device.by_category.append(np.zeros((missing, len(CATEGORY_NAMES)), np.int64))
            device.by_phase.append(np.zeros((missing, self._phases + 1), np.int64))

    def feed(self, batch: Batch) -> None:
        """Take the next batch."""
        while self._looks and not batch.is_lead_in:
            cut = self._looks[0][0] + 1 - self._done
            if cut > len(batch):
                break
            self._feed_part(_part(batch, 0, cut))
            self._look_until(self._done - 1)
            batch = _part(batch, cut, len(batch))
        self._feed_part(batch)

    def finish(self) -> dict[int, PeakComposition]:
        """Return what was found, by device."""
        return {number: self._of_device(number, d) for number, d in self._devices.items()}

    def _of_device(self, number: int, device: _Device) -> PeakComposition:
        without, with_half = self._groups.highest_if(number)
        return PeakComposition(
            category_bytes=np.vstack(device.by_category),
            phase_bytes=np.vstack(device.by_phase),
            highest_without=without,
            highest_with_half=with_half,
            blocks=self._blocks.get(number),
        )

    def _feed_part(self, batch: Batch) -> None:
        if not len(batch):
            return
        rows, owner = [np.zeros(0, np.int64)], [np.zeros(0, np.int16)]
        if not batch.is_lead_in:
            for number, device in self._devices.items():
                position = device.places.position
                first, end = np.searchsorted(position, [self._done, self._done + len(batch)])
                rows.append(position[first:end] - self._done)
                owner.append(np.full(end - first, number, np.int16))
            self._done += len(batch)
        row, of = np.concatenate(rows), np.concatenate(owner)
        order = np.argsort(row, kind="stable")
        row, of = row[order], of[order]
        by_category, by_phase = self._groups.feed(batch.raw, batch.step, batch.phase, row, of)
        for number, device in self._devices.items():
            mine = of == number
            device.by_category.append(by_category[mine])
            device.by_phase.append(by_phase[mine])

    def _look_until(self, record: int) -> None:
        while self._looks and self._looks[0][0] <= record:
            _, device = self._looks.pop(0)
            blocks = self._groups.live(device)
            blocks["alloc"] = blocks.pop("number")
            self._blocks[device] = LiveSet(**blocks)


def _part(batch: Batch, first: int, end: int) -> Batch:
    return batch.window(first, end, first_event=0, is_lead_in=False)
