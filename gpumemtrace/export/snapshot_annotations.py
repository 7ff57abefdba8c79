"""Steps and phases as the ``external_annotations`` of a PyTorch memory snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.export.phase_changes import unchanged
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind, PhaseFlags
from gpumemtrace.trace_data import TraceData

__all__ = ["Annotations"]


class Annotations:
    """Collects where steps, phases and marks begin and end; memory of the marks.

    Only the driving thread's phases: a snapshot does not say whose an entry is. Each says by
    ``entry`` how many entries of the device come before it, which its time (in microseconds) can't.
    """

    def __init__(self, trace: TraceData) -> None:
        self._trace = trace
        self._open: tuple[str, ...] = ()
        self._step: int | None = None
        self._has_steps = False
        self._found: list[tuple[int, str, str, bool, Mapping[int, int]]] = []

    def feed(self, batch: Batch, counts: Mapping[int, npt.NDArray[np.int64]]) -> None:
        """Take a batch; ``counts``: device -> entries before each of its records."""
        raw = batch.raw
        if self._step is None and len(batch):
            self._to_step(batch, 0, counts)
        rows = np.isin(raw["kind"], (Kind.PHASE, Kind.STEP, Kind.MARK))
        for row in np.flatnonzero(rows).tolist():
            kind = raw["kind"][row]
            if kind == Kind.STEP:
                self._has_steps = True
                if int(raw["size_bytes"][row]) != self._step:
                    self._to_step(batch, row, counts)
            elif kind == Kind.MARK:
                for stage in ("START", "END"):
                    text = self._trace.text(int(raw["size_bytes"][row]))
                    self._add(batch, row, counts, text, stage, is_mark=True)
            elif raw["thread"][row] == self._trace.driving_thread:
                self._to_path(batch, row, counts)

    def to_list(self, devices: list[int], begin_wall_ns: int) -> list[dict[str, Any]]:
        """Return them as they stand in a snapshot: each device is told of all."""
        return [
            {
                "name": name,
                "stage": stage,
                "device": device,
                "time_us": (begin_wall_ns + time_ns) // 1000,
                "entry": counts.get(device, 0),
                **({"kind": "mark"} if is_mark else {}),
            }
            for device in devices
            for time_ns, name, stage, is_mark, counts in self._found
            if self._has_steps or not name.startswith(_STEP)
        ]

    def _name_of_step(self) -> str:
        assert self._step is not None
        return f"{_STEP}{self._trace.marks.numbers_of(self._step)}"

    def _to_step(self, batch: Batch, row: int, counts: Mapping[int, Any]) -> None:
        if self._step is not None:
            self._add(batch, row, counts, self._name_of_step(), "END")
        self._step = int(batch.step[row])
        self._add(batch, row, counts, self._name_of_step(), "START")

    def _to_path(self, batch: Batch, row: int, counts: Mapping[int, Any]) -> None:
        index = int(self._trace.path_of_id(batch.raw["size_bytes"][row : row + 1])[0])
        path = self._trace.phase_paths[index] if index >= 0 else ()
        is_entered = bool(batch.raw["flags"][row] & PhaseFlags.ENTERED)
        same = unchanged(self._open, path, is_entered=is_entered)
        for name in reversed(self._open[same:]):
            self._add(batch, row, counts, name, "END")
        for name in path[same:]:
            self._add(batch, row, counts, name, "START")
        self._open = path

    def _add(
        self,
        batch: Batch,
        row: int,
        counts: Mapping[int, npt.NDArray[np.int64]],
        name: str,
        stage: str,
        *,
        is_mark: bool = False,
    ) -> None:
        before = {device: int(count[row]) for device, count in counts.items()}
        self._found.append((int(batch.raw["time_ns"][row]), name, stage, is_mark, before))


_STEP = "ProfilerStep#"
