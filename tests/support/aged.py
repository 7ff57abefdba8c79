"""Long runs written twice: whole, and within a limit of disk space."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpumemtrace.records import RAW_COLUMNS
from gpumemtrace.schema import Kind, PhaseFlags, StatsCause
from gpumemtrace.trace_file import FileWriter, Names

MIB = 1 << 20
PHASES = ("data", "forward", "backward", "optimizer")
_BASE = 0x7F0000000000


class Run:
    """A made-up training run on two devices, step by step, whose live set is known.

    In each step blocks come and go, some live on for a few steps, a thread of its own allocates
    in ``data``, counters are read and the devices sampled. ``peak_at``, ``oom_at``, ``retry_at``,
    ``gap_at``, ``growth_at``: steps with something unusual.
    """

    def __init__(self, seed: int = 0, *, pairs: int = 60, unusual: dict[str, int] | None = None):
        self._random = np.random.default_rng(seed)
        self._pairs = pairs
        self._unusual = unusual or {}
        self._free = {device: list(range(4000, 0, -1)) for device in (0, 1)}
        self._live: dict[int, list[tuple[int, int]]] = {0: [], 1: []}  # (death step, slot)
        self._sizes: dict[tuple[int, int], int] = {}
        self._allocated = {0: 0, 1: 0}
        self._reserved = {0: 0, 1: 0}
        self._time_ns = 0
        self._rows: list[dict[str, int]] = []

    def names(self) -> Names:
        return Names(phases={i: (0, name) for i, name in enumerate(PHASES, start=1)})

    def steps(self, count: int) -> Iterator[dict[str, np.ndarray]]:
        for device in (0, 1):
            for _ in range(20):
                self._alloc(device, dies_at=1 << 40)
            self._counters(device, StatsCause.BASELINE)
        for step in range(count):
            self._step(step)
            rows, self._rows = self._rows, []
            yield {
                name: np.array([row.get(name, 0) for row in rows], dtype)
                for name, dtype in RAW_COLUMNS.items()
            }

    def _step(self, step: int) -> None:
        unusual = {what for what, at in self._unusual.items() if at == step}
        if "retry" in unusual:
            self._add(Kind.RETRY, device=0, size_bytes=MIB)
        if "oom" in unusual:
            self._add(Kind.ALLOC_FAILED, device=0, size_bytes=80 << 30)
        if "gap" in unusual:
            self._add(Kind.GAP, device=-1, address=7)
        for phase, _ in enumerate(PHASES, start=1):
            thread = 2 if phase == 1 else 1
            self._mark_phase(phase, thread)
            for _ in range(self._pairs // len(PHASES)):
                device = int(self._random.random() < 0.3)
                lives_on = self._random.random() < 0.05
                dies_at = step + int(self._random.integers(1, 4)) if lives_on else step
                self._alloc(device, dies_at=dies_at, thread=thread)
            if phase == 2 and "peak" in unusual:
                self._alloc(0, dies_at=step, size=900 * MIB)
            if phase == 3 and "growth" in unusual:
                for _ in range(40):
                    self._alloc(0, dies_at=1 << 40, size=6 * MIB)
            for device in (0, 1):
                dying = [entry for entry in self._live[device] if entry[0] <= step]
                self._random.shuffle(dying)
                for entry in dying if phase == len(PHASES) else dying[len(dying) // 3 :]:
                    self._release(device, entry)
            if self._random.random() < 0.3:
                self._counters(0, StatsCause.MISS)
            self._mark_phase(0, thread)
        for device in (0, 1):
            used = self._reserved[device] + int(self._random.integers(0, 64)) * MIB
            self._add(Kind.DEVICE_USED, device=device, size_bytes=used, thread=0)
        self._add(Kind.STEP, device=-1, size_bytes=step + 1)

    def _alloc(self, device: int, *, dies_at: int, thread: int = 1, size: int = 0) -> None:
        slot = self._free[device].pop()
        if not size:
            size = int(self._random.choice([512, 700, 4096, MIB // 2, 3 * MIB, 9 * MIB]))
        block = (size + 511) // 512 * 512
        if size > MIB and self._random.random() < 0.3:
            block += 256 * 1024  # the allocator left this unsplit
        self._sizes[device, slot] = block
        self._live[device].append((dies_at, slot))
        self._allocated[device] += block
        self._reserved[device] = max(self._reserved[device], self._allocated[device])
        self._add(
            Kind.ALLOC,
            device=device,
            address=self._address(device, slot),
            size_bytes=size,
            thread=thread,
            extra=self._allocated[device] if size > MIB else 0,
        )

    def _release(self, device: int, entry: tuple[int, int]) -> None:
        self._live[device].remove(entry)
        self._allocated[device] -= self._sizes.pop((device, entry[1]))
        self._free[device].append(entry[1])
        self._add(Kind.FREE, device=device, address=self._address(device, entry[1]))

    def _counters(self, device: int, cause: StatsCause) -> None:
        allocated = self._allocated[device]
        self._add(
            Kind.STATS,
            device=device,
            address=allocated,
            size_bytes=allocated - 4096,
            stream=allocated + 8192,
            extra=self._reserved[device] + MIB,
            flags=cause,
        )

    def _mark_phase(self, phase: int, thread: int) -> None:
        flags = PhaseFlags.ENTERED if phase else 0
        self._add(Kind.PHASE, device=-1, size_bytes=phase, flags=flags, thread=thread)

    def _add(self, kind: Kind, **columns: int) -> None:
        self._time_ns += int(self._random.integers(100, 3000))
        self._rows.append({"thread": 1, "kind": int(kind), "time_ns": self._time_ns} | columns)

    @staticmethod
    def _address(device: int, slot: int) -> int:
        return _BASE + (device << 40) + slot * 32 * MIB


def write(
    path: Path,
    steps: Iterator[dict[str, np.ndarray]],
    names: Names,
    *,
    max_disk_bytes: int = 0,
    after_step: Callable[[int], None] = lambda step: None,
    **options: Any,
) -> int:
    """Write the steps; return how often the file was made smaller. Checks the limit all along."""
    with FileWriter(path, max_disk_bytes=max_disk_bytes, **options) as writer:
        writer.write_metadata({"script": "long.py"})
        writer.write_names(names)
        for step, columns in enumerate(steps):
            writer.append(columns | {"size_bytes": columns["size_bytes"].view(np.uint64)})
            if max_disk_bytes:
                assert disk_bytes(path.parent) <= max_disk_bytes
            after_step(step)
        writer.close({"reason": "closed"})
        if max_disk_bytes:
            assert path.stat().st_size <= max_disk_bytes
        return writer.rounds


def disk_bytes(folder: Path, pid: int | str = "self") -> int:
    """Return what a process's open files in ``folder`` take, those without a name too."""
    sizes = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if str(link.readlink()).startswith(f"{folder}/"):
                status = link.stat()
                sizes[status.st_ino] = status.st_size
        except OSError:
            continue  # closed meanwhile
    return sum(sizes.values())
