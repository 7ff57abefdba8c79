"""Made-up traces: random ones for property tests, and small ones built record by record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gpumemtrace.records import RAW_COLUMNS, MemorySource
from gpumemtrace.schema import Category, Kind, PhaseFlags, StackState, StatsCause
from gpumemtrace.trace import Trace
from gpumemtrace.trace_file import Names

MIB = 1 << 20


@dataclass(eq=False)
class TraceBuilder:
    """Records one by one; the clock ticks 1 us per record unless told otherwise."""

    rows: list[dict[str, int]] = field(default_factory=list)
    phases: dict[int, tuple[int, str]] = field(default_factory=dict)
    strings: dict[int, str] = field(default_factory=dict)
    modules: dict[int, tuple[int, str]] = field(default_factory=dict)
    codes: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    frames: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    sites: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    run_record: dict[str, Any] = field(default_factory=dict)
    footer: dict[str, Any] = field(default_factory=dict)
    complete: bool = True
    time_ns: int = 0

    def add(self, kind: Kind, **columns: int) -> TraceBuilder:
        self.time_ns += columns.pop("after_ns", 1000)
        self.rows.append(
            {"thread": 1, "device": 0} | columns | {"kind": int(kind), "time_ns": self.time_ns}
        )
        return self

    def alloc(self, address: int, size: int, **columns: int) -> TraceBuilder:
        return self.add(Kind.ALLOC, address=address, size_bytes=size, **columns)

    def free(self, address: int, **columns: int) -> TraceBuilder:
        return self.add(Kind.FREE, address=address, **columns)

    def stats(
        self, requested: int, allocated: int, active: int, reserved: int, **columns: int
    ) -> TraceBuilder:
        return self.add(
            Kind.STATS,
            size_bytes=requested,
            address=allocated,
            stream=active,
            extra=reserved,
            **({"flags": StatsCause.MISS} | columns),
        )

    def step(self, number: int, **columns: int) -> TraceBuilder:
        return self.add(Kind.STEP, size_bytes=number, **({"device": -1} | columns))

    def phase(self, path: str, *, entered: bool = True, **columns: int) -> TraceBuilder:
        """The thread's phase is ``path`` ("train/forward") from here on; "" = none."""
        flags = columns.pop("flags", 0) | (PhaseFlags.ENTERED if entered and path else 0)
        id = self.path_id(path)
        return self.add(Kind.PHASE, size_bytes=id, flags=flags, **({"device": -1} | columns))

    def path_id(self, path: str) -> int:
        id = 0
        for name in path.split("/") if path else ():
            known = [i for i, entry in self.phases.items() if entry == (id, name)]
            if not known:
                known = [len(self.phases) + 1]
                self.phases[known[0]] = (id, name)
            id = known[0]
        return id

    def site(
        self,
        module: str = "",
        *stack: tuple[str, int, str],
        root: str = "",
        state: int | None = None,
    ) -> int:
        """Return the number of a site: a module's path in its outermost one (``root``), and the
        frames (file, line, function) of its stack, innermost first.
        """
        in_root = _number_of(self.modules, (0, root)) if root else 0
        frame = 0
        for file, line, function in reversed(stack):
            code = _number_of(self.codes, (file, function, 1))
            frame = _number_of(self.frames, (frame, code, line))
        if state is None:
            state = StackState.TAKEN if stack else StackState.OFF
        number = _number_of(self.modules, (in_root, module)) if module else in_root
        return _number_of(self.sites, (number, frame, int(state)))

    def tag(
        self, address: int, name: str, category: Category, size: int = 1, site: int = 0
    ) -> TraceBuilder:
        text = _number_of(self.strings, name)
        columns = {"address": address, "size_bytes": size, "stream": int(category), "extra": text}
        return self.add(Kind.TAG, **columns, site=site)

    def trace(self, *, batch_records: int = 1 << 18) -> Trace:
        records = {
            name: np.array([row.get(name, 0) for row in self.rows], dtype)
            for name, dtype in RAW_COLUMNS.items()
        }
        source = MemorySource(
            records,
            Names(
                phases=self.phases,
                strings=self.strings,
                modules=self.modules,
                codes=self.codes,
                frames=self.frames,
                sites=self.sites,
            ),
            self.run_record,
            self.footer,
            complete=self.complete,
            batch_records=batch_records,
        )
        return Trace(source)


def _number_of(table: dict[int, Any], row: Any) -> int:
    """Return the number of a row, which is added if it is not there."""
    known = [number for number, other in table.items() if other == row]
    number = known[0] if known else len(table) + 1
    table[number] = row
    return number


@st.composite
def event_columns(
    draw: st.DrawFn, *, min_events: int = 0, max_events: int = 60
) -> dict[str, np.ndarray]:
    """Columns for `Trace.from_events`: mostly well-formed, some double allocs and unknown frees."""
    row = st.tuples(
        st.sampled_from([1, 1, 2]),  # kind
        st.integers(0, 7),  # which address
        st.sampled_from([0, 1, 511, 512, 3000, MIB, MIB + 1, 40 * MIB]) | st.integers(0, 1 << 30),
        st.sampled_from([0, 0, 0, 1]),  # device
        st.integers(1, 3),  # thread
        st.integers(-50, 10**6),  # ns since the one before
        st.sampled_from([0, 0, 0, 1, 2]),  # steps since then
        st.sampled_from([-1, 0, 1, 3, 9, 9, 9]),  # phase, 9 = as before
    )
    rows = np.array(
        draw(st.lists(row, min_size=min_events, max_size=max_events)), np.int64
    ).reshape(-1, 8)
    kind, slot, size, device, thread, gaps, steps, phases = rows.T
    count = len(rows)
    for i in range(count):
        if phases[i] == 9:
            phases[i] = phases[i - 1] if i else -1
    return {
        "time_ns": 1000 + np.cumsum(gaps),
        "kind": kind.astype(np.uint8),
        "address": (0x7F0000000000 + slot * 64 * MIB + device * 2**40).astype(np.uint64),
        "size_bytes": np.where(kind == 1, size, 0),
        "stream": np.zeros(count, np.uint64),
        "device": device.astype(np.int16),
        "thread": thread.astype(np.uint32),
        "step": np.cumsum(steps) + draw(st.sampled_from([-1, 0, 7])),
        "phase": phases.astype(np.int32),
    }


PHASE_NAMES = ("forward", "backward", "unused", "data")
