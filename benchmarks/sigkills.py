"""Is anything lost or doubled when a recording process is killed, at any instant?

    nice python benchmarks/sigkills.py [--kills 1000] [--folder DIR] [--json]

Forks a process that records steps and marks with texts of their own, notes in shared memory how
many it has pushed, and is killed with SIGKILL after a random time, or while its file is being made.
Then the trace is opened, which recovers what was not written, and what is read is compared with
what was pushed. A row for each drain and flush interval.

"Not begun" are files so early that they don't open, and nothing had been pushed. "Not noted": an
event between its push and the note, at most one a kill. "Texts lost": marks that are there without
their text; "unexplained", if the recovery did not count them as left out for want of room.

Ends with status 1 when anything is missing or doubled, a text is lost, another file can't be
opened, or a segment is left behind.
"""

import argparse
import json
import mmap
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from gpumemtrace import _core
from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.schema import Kind
from gpumemtrace.trace_file import TraceFile

INTERVALS_MS = ((1, 5), (5, 100), (20, 1000))  # drain, flush; the second is the default
SHARED_MEMORY = Path("/dev/shm")


def record(path: Path, pushed: mmap.mmap, drain_ms: int, flush_ms: int) -> None:
    """Push until killed: nine steps, then a mark with a text of its own."""
    _core.session_start(
        path, metadata_json="{}", drain_interval_ms=drain_ms, flush_interval_ms=flush_ms
    )
    number = 0
    while True:
        if number % 10 == 9:
            _core.push_mark(_core.define_string(f"text {number}"))
        else:
            _core.push_step(number)
        number += 1
        pushed[:8] = number.to_bytes(8, "little")
        if number % 64 == 0:
            time.sleep(0.0002)


def kill_one(path: Path, drain_ms: int, flush_ms: int) -> Counter[str]:
    """Record, kill, read; return what came of it."""
    pushed = mmap.mmap(-1, mmap.PAGESIZE)
    child = os.fork()
    if child == 0:
        try:
            record(path, pushed, drain_ms, flush_ms)
        finally:
            os._exit(1)
    while not path.exists():
        time.sleep(0.0001)
    time.sleep(random.choice((random.uniform(0, 0.003), random.uniform(0, 0.4))))
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    found = Counter(kills=1, died_otherwise=os.waitstatus_to_exitcode(status) != -signal.SIGKILL)
    published = int.from_bytes(pushed[:8], "little")
    found["published"] = published
    begin = time.perf_counter()
    try:
        file = TraceFile(path)
        columns = file.read()
    except GpuMemTraceError:
        found["not_opened" if published else "not_begun"] = 1
        found["missing"] = published
        return found
    found["recovery_us"] = int((time.perf_counter() - begin) * 1e6)
    found["opened"] = 1
    found["read"] = len(columns["kind"])
    found["recovered"] = int((file.footer or {}).get("recovered", {}).get("events", 0))
    judge(file, columns, published, found)
    segment = file.run_record.get("recovery", {}).get("segment")
    found["segments_left"] = int(segment is not None and (SHARED_MEMORY / segment).exists())
    return found


def judge(file: TraceFile, columns: dict[str, np.ndarray], published: int, found: Counter) -> None:
    """Count what is missing, doubled, out of order, or lacks its text."""
    numbers = columns["size_bytes"].astype(np.int64)
    marks = columns["kind"] == Kind.MARK
    texts = [file.names.strings.get(int(id), "") for id in numbers[marks]]
    found["texts_lost"] = sum(not text for text in texts)
    numbers[marks] = [int(text.removeprefix("text ") or -1) for text in texts]
    # A mark without its text is there: it stands where its number would.
    numbers = numbers[numbers >= 0]
    distinct = np.unique(numbers)
    found["doubled"] = len(numbers) - len(distinct)
    read = np.count_nonzero(distinct < published) + found["texts_lost"]
    found["missing"] = max(published - read, 0)
    found["disordered"] = int(np.count_nonzero(np.diff(numbers) < 0))
    found["not_noted"] = max(len(distinct) + found["texts_lost"] - published, 0)
    # Those that found no room in shared memory while the drain had no turn are counted there.
    recovered = (file.footer or {}).get("recovered", {})
    left_out = int(recovered.get("names_left_out", 0))
    found["texts_unexplained"] = max(found["texts_lost"] - left_out, 0)
    found["backward"] = int(np.count_nonzero(np.diff(columns["time_ns"]) < 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="where the traces are written (default: /tmp)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON lines")
    options = parser.parse_args()
    sums = {interval: Counter[str]() for interval in INTERVALS_MS}
    times: dict[tuple[int, int], list[int]] = {interval: [] for interval in INTERVALS_MS}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for number in range(options.kills):
            interval = INTERVALS_MS[number % len(INTERVALS_MS)]
            path = Path(folder) / f"{number}.gmt"
            found = kill_one(path, *interval)
            times[interval].append(found["recovery_us"])
            sums[interval] += Counter({name: int(value) for name, value in found.items()})
            path.unlink()
    table = Table(title=f"{options.kills} SIGKILLs", title_justify="left")
    shown = ("kills", "not_begun", "opened", "published", "read", "not_noted", "recovered")
    bad = ("missing", "doubled", "disordered", "backward")
    bad += ("texts_lost", "texts_unexplained", "segments_left")
    for heading in ("drain, flush", *shown, *bad, "open and read, ms"):
        table.add_column(heading.replace("_", " "), justify="right")
    failed = False
    for (drain_ms, flush_ms), found in sums.items():
        failed |= any(found[name] for name in (*bad, "died_otherwise"))
        took_ms = median(times[drain_ms, flush_ms] or [0]) / 1000
        if options.json:
            row = {"drain_ms": drain_ms, "flush_ms": flush_ms, "open_ms": took_ms, **found}
            print(json.dumps(row))
        cells = [f"{found[name]:,}" for name in (*shown, *bad)]
        table.add_row(f"{drain_ms}, {flush_ms} ms", *cells, f"{took_ms:.1f}")
    if not options.json:
        Console(width=170).print(table)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
