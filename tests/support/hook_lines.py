"""Memory lines from a trace's events, one at a time, as slow and plain as can be.

The reference for what the hook promises: after each event, requested, allocated, active and
reserved bytes of a device are what torch counts, and so are their peaks. And for what the reader
makes of it: the same lines, at every event.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpumemtrace
from gpumemtrace.analysis.lines import LineStream
from gpumemtrace.schema import Kind, StatsCause
from gpumemtrace.trace_file import TraceFile

LINES = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes")


MIB = 1 << 20
MOST_UNSPLIT = 20 * MIB  # what a block may be larger than its request, max_split_size_mb included


@dataclass
class Device:
    now: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LINES, 0))
    peak: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LINES, 0))

    def change(self, **by: int) -> None:
        for line, amount in by.items():
            self.now[line] += amount
        self.note()

    def note(self) -> None:
        for line in LINES:
            self.peak[line] = max(self.peak[line], self.now[line])

    def counters(self) -> dict[str, int]:
        return {
            f"{line}.{what}": values[line]
            for line in LINES
            for what, values in (("current", self.now), ("peak", self.peak))
        }


class Replay:
    """What an event stream says. ``live`` maps an address to (device, requested, block bytes)."""

    def __init__(self) -> None:
        self.devices: dict[int, Device] = {}
        self.live: dict[int, tuple[int, int, int]] = {}
        self.segments: list[tuple[int, int, int]] = []  # device, base, end; the newest last
        self.expandable = False
        self.counts: Counter[Kind] = Counter()
        self.sizes_told = 0
        self.unknown_frees = 0
        self.double_allocs = 0

    def take(self, event: dict[str, Any]) -> None:
        kind = Kind(event["kind"])
        self.counts[kind] += 1
        address, size, extra = event["address"], event["size_bytes"], event["extra"]
        if kind is Kind.ALLOC:
            device = self.devices.setdefault(event["device"], Device())
            if extra:
                block = extra - device.now["allocated_bytes"]
                # Where threads met, the counter holds what others did meanwhile, too.
                rounded = -(-size // 512) * 512
                if not size <= block <= rounded + MOST_UNSPLIT:
                    device.now["allocated_bytes"] += block - rounded
                    device.now["active_bytes"] += block - rounded
                    block = rounded
                self.sizes_told += 1
            else:
                block = self.block_size(event["device"], address, -(-size // 512) * 512)
            self.double_allocs += address in self.live
            self.live[address] = (event["device"], size, block)
            device.change(requested_bytes=size, allocated_bytes=block, active_bytes=block)
        elif kind is Kind.FREE:
            if address not in self.live:
                self.unknown_frees += 1
                return
            of, size, block = self.live.pop(address)
            self.devices[of].change(
                requested_bytes=-size, allocated_bytes=-block, active_bytes=-block
            )
        elif kind is Kind.SEGMENT_ALLOC:
            self.segments.append((event["device"], address, address + size))
        elif kind is Kind.SEGMENT_MAP:
            self.expandable = True
        elif kind is Kind.STATS:
            assert StatsCause(event["flags"])
            device = self.devices.setdefault(event["device"], Device())
            device.now = dict(zip(LINES, (size, address, event["stream"], extra), strict=True))
            device.note()

    def block_size(self, device: int, address: int, rounded: int) -> int:
        """Bytes of a new block: what is free there, if less than 1 MiB of it would be left."""
        if rounded <= MIB or self.expandable:
            return rounded
        ends = [end for of, base, end in self.segments if of == device and base <= address < end]
        if not ends:
            return rounded
        after = [a for a, (of, _, _) in self.live.items() if of == device and a > address]
        free = min([ends[-1], *after]) - address
        return free if 0 <= free - rounded <= MIB else rounded


def events_of(path: Path) -> Iterator[dict[str, Any]]:
    """Each event of a trace, in order."""
    file = TraceFile(path)
    assert file.complete and not file.problems, file.problems
    columns = file.read()
    names = list(columns)
    for row in zip(*(columns[name].tolist() for name in names), strict=True):
        yield dict(zip(names, row, strict=True))


def reader_lines(path: Path) -> Iterator[dict[str, int]]:
    """Yield what the reader makes of each record: its device and that one's lines."""
    for _, lines in LineStream(gpumemtrace.open(path)):
        columns = {"device": lines.device, **lines.values}
        for row in zip(*(column.tolist() for column in columns.values()), strict=True):
            yield dict(zip(columns, row, strict=True))


def replay(path: Path) -> Replay:
    """Take every event of a trace."""
    result = Replay()
    for event in events_of(path):
        result.take(event)
    return result


def check_steps(
    path: Path, done: subprocess.CompletedProcess[str], *, peaks: bool = True
) -> Replay:
    """Compare a trace with what its program printed by `hook_child.Steps.finish`.

    ``peaks=False`` for a program whose threads meet in the allocator: what was in flight then has
    no order that anybody could know.
    """
    expected = json.loads(done.stdout.strip().splitlines()[-1])
    assert expected
    result = Replay()
    step = 0
    for number, (event, line) in enumerate(zip(events_of(path), reader_lines(path), strict=True)):
        if Kind(event["kind"]) is Kind.STEP:
            seen = {str(of): device.counters() for of, device in result.devices.items()}
            assert select(seen, peaks) == select(expected[step], peaks), (
                f"step {step}, event {number}"
            )
            step += 1
        else:
            result.take(event)
            of = line.pop("device")
            if of in result.devices:
                now = result.devices[of].now
                assert line == {name: now[f"{name}_bytes"] for name in line}, f"event {number}"
    assert step == len(expected)
    assert result.unknown_frees == 0 and result.double_allocs == 0
    return result


def select(counters: dict[str, dict[str, int]], peaks: bool) -> dict[str, dict[str, int]]:
    """Leave out the peaks, unless they are wanted."""
    return {
        device: {name: n for name, n in values.items() if peaks or name.endswith(".current")}
        for device, values in counters.items()
    }
