"""A long run within a limit of disk space: whether it holds, what that costs, and what is kept.

    python benchmarks/ageing.py [--events 1e8] [--max-disk 200MiB] [--fixed-length] [--keep FILE]

Writes synthetic training (synthetic_trace.py: batches of another length in each step, or always the
same) with three unusual steps in it: a higher peak, a retry, a request that could not be served.
Meanwhile another thread looks every 5 ms at what the process's open files take, also those without
a name. Then the file is read, and held against what was written. What ageing costs is the CPU time
of the writing thread beside that of the same run, a tenth as long, without a limit. Exit status 1
when anything that must hold does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from synthetic_trace import MIB, write_trace

import gpumemtrace
from gpumemtrace.analysis.aged import describe_ranges, find_aged
from gpumemtrace.analysis.check import check_trace
from gpumemtrace.schema import Kind
from gpumemtrace.units import format_bytes, parse_bytes


class DiskWatch(threading.Thread):
    """The most that the process's open files in a folder took, and when it had looked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.most_bytes = self.looks = 0
        self._prefix = f"{folder}/"
        self._stop_asked = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stop_asked.wait(0.005):
            self.most_bytes = max(self.most_bytes, self._taken())
            self.looks += 1

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()

    def _taken(self) -> int:
        sizes = {}
        for link in Path("/proc/self/fd").iterdir():
            try:
                if str(link.readlink()).startswith(self._prefix):
                    status = link.stat()
                    sizes[status.st_ino] = status.st_size
            except OSError:
                continue  # closed meanwhile
        return sum(sizes.values())


class Unusual:
    """Changes three of the steps, and counts what is written."""

    def __init__(self, steps: int) -> None:
        self.higher, self.retried, self.failed = steps // 3, steps // 2, 2 * steps // 3
        self.allocs = self.frees = 0

    def alter(self, step: int, records: dict[str, Any]) -> dict[str, Any]:
        if step == self.higher:
            large = records["size_bytes"] > MIB
            records["size_bytes"][large] = records["size_bytes"][large] * 3
        if step == self.retried:
            records = self._with(records, Kind.RETRY)
        if step == self.failed:
            records = self._with(records, Kind.ALLOC_FAILED)
        self.allocs += int((records["kind"] == Kind.ALLOC).sum())
        self.frees += int((records["kind"] == Kind.FREE).sum())
        return records

    @staticmethod
    def _with(records: dict[str, Any], kind: Kind) -> dict[str, Any]:
        middle = len(records["kind"]) // 2
        more = {"kind": kind, "size_bytes": 8192 * MIB, "time_ns": records["time_ns"][middle]}
        more["thread"] = 1
        return {
            name: np.insert(column, middle, more.get(name, 0)) for name, column in records.items()
        }


def cpu_ns_an_event(path: Path, events: int, *, max_disk_bytes: int, **options: Any) -> float:
    begun = time.thread_time()
    write_trace(path, events=events, max_disk_bytes=max_disk_bytes, **options)
    return (time.thread_time() - begun) / events * 1e9


def verdicts(
    path: Path, unusual: Unusual, steps: int, watch: DiskWatch, limit: int
) -> dict[str, bool]:
    """Return what must hold, with its figures, and whether it does."""
    trace = gpumemtrace.open(path)
    aged = find_aged(trace)
    records = trace.records(Kind.AGED)
    allocs = int((trace.kind == Kind.ALLOC).sum() + records["address"].sum())
    frees = int((trace.kind == Kind.FREE).sum() + records["stream"].sum())
    peak = trace.peak()
    wanted = (0, steps - 1, unusual.higher, unusual.retried, unusual.failed)
    detailed = [any(a <= step <= b for a, b in aged.detailed) for step in wanted]
    most = format_bytes(watch.most_bytes)
    return {
        f"disk cap held: {most} at most of {format_bytes(limit)}, {watch.looks:,} looks": (
            0 < watch.most_bytes <= limit
        ),
        f"the file at its end: {format_bytes(path.stat().st_size)}": path.stat().st_size <= limit,
        f"check: {check_trace(trace).verdict}": check_trace(trace).verdict == "good",
        f"{allocs:,} allocs and {frees:,} frees are there or counted as left out": (
            (allocs, frees) == (unusual.allocs, unusual.frees)
        ),
        f"in full detail: steps {describe_ranges(aged.detailed)}": all(detailed),
        f"the peak is in step {peak.step:,}, of {len(peak.blocks):,} blocks": (
            peak.step == unusual.higher and not peak.is_summarised
        ),
        f"{len(aged.step):,} summaries, {aged.merged_steps:,} steps share theirs": bool(aged),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=float, default=1e8)
    parser.add_argument("--max-disk", type=parse_bytes, default=200 * MIB)
    parser.add_argument("--fixed-length", action="store_true")
    parser.add_argument("--keep", type=Path, help="where the trace is left (default: nowhere)")
    args = parser.parse_args()
    events, varies = int(args.events), {"variable_length": not args.fixed_length}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "aged.gmt"
        plain = cpu_ns_an_event(path, events // 10, max_disk_bytes=0, **varies)
        steps = events // 2000
        unusual = Unusual(steps)
        watch = DiskWatch(path.parent)
        aged = cpu_ns_an_event(
            path, events, max_disk_bytes=args.max_disk, alter=unusual.alter, **varies
        )
        watch.stop()
        found = verdicts(path, unusual, steps, watch, args.max_disk)
        if args.keep:
            args.keep.write_bytes(path.read_bytes())
    print(f"{events:,} events, {steps:,} steps; CPU an event, making it included: {aged:.0f} ns,")
    print(f"without a limit {plain:.0f} ns: ageing takes {(aged - plain) / 1000:.2f} us an event")
    for what, holds in found.items():
        print(("yes  " if holds else "NO   ") + what)
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
