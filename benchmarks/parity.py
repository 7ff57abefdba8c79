"""Does the trace say what torch's own counters said, at the end of every step, to the byte?

    python benchmarks/parity.py run.gmt counters.json          # both from train.py
    python benchmarks/parity.py --against real.json sim.json  # two runs' counters

Prints one line; exit status 1 when a byte differs (for two runs: only reported).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import gpumemtrace
from gpumemtrace.analysis.lines import ALLOCATOR_LINES, LineStream
from gpumemtrace.schema import Kind

Counters = dict[str, dict[str, int]]


def read_marks(path: Path) -> Iterator[tuple[int, Counters]]:
    """(step, current and peak of each line of device 0) at every ``counters N`` mark."""
    trace = gpumemtrace.open(path)
    now = dict.fromkeys(ALLOCATOR_LINES, 0)
    peak = dict(now)
    for batch, lines in LineStream(trace):
        on_device = lines.device == 0
        marks = np.flatnonzero(batch.raw["kind"] == Kind.MARK)
        begin = 0
        for end in [*marks.tolist(), len(batch)]:
            rows = np.flatnonzero(on_device[begin:end]) + begin
            for line in ALLOCATOR_LINES if rows.size else ():
                values = lines.values[line][rows]
                now[line] = int(values[-1])
                peak[line] = max(peak[line], int(values.max()))
            begin = end
            if end < len(batch):
                text = trace.text(int(batch.raw["size_bytes"][end]))
                if text.startswith("counters "):
                    step = int(text.split()[1])
                    yield step, {k: {"current": now[k], "peak": peak[k]} for k in now}


def differences(ours: Counters, theirs: Counters) -> dict[str, int]:
    """``line.when`` -> bytes of difference, where there is one."""
    return {
        f"{line}.{when}": ours[line][when] - theirs[line][when]
        for line in ALLOCATOR_LINES
        for when in ("current", "peak")
        if ours[line][when] != theirs[line][when]
    }


def check_trace(trace: Path, counters: Path) -> int:
    """Compare a trace with the counters read in the same run; 0 when equal."""
    truth: list[Counters] = json.loads(counters.read_text())["counters"]
    seen = dict(read_marks(trace))
    wrong = {step: diff for step, c in seen.items() if (diff := differences(c, truth[step]))}
    missing = sorted(set(range(len(truth))) - set(seen))
    worst = max((abs(v) for diff in wrong.values() for v in diff.values()), default=0)
    print(
        f"{trace.name}: {len(seen)} of {len(truth)} steps, 8 figures each; "
        f"{len(wrong)} steps differ, at most by {worst} bytes"
        + (f"; first: step {next(iter(wrong))} {next(iter(wrong.values()))}" if wrong else "")
        + (f"; no mark for steps {missing[:5]}" if missing else "")
    )
    return 1 if wrong or missing or not seen else 0


def compare_runs(real: Path, simulated: Path) -> int:
    """Compare two runs' counters step by step and print one table row."""
    a, b = (json.loads(path.read_text())["counters"] for path in (real, simulated))
    equal = sum(not differences(y, x) for x, y in zip(a, b, strict=True))
    cells = []
    for line in ALLOCATOR_LINES:
        ours, theirs = b[-1][line]["peak"], a[-1][line]["peak"]
        cells.append("equal" if ours == theirs else f"{100 * (ours / theirs - 1):+.4f} %")
    mib = a[-1]["reserved"]["peak"] / 2**20
    print(f"| {real.stem} | {equal} of {len(a)} | " + " | ".join(cells) + f" | {mib:,.0f} MiB |")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--against", action="store_true", help="both are counters of two runs")
    args = parser.parse_args()
    return (compare_runs if args.against else check_trace)(args.first, args.second)


if __name__ == "__main__":
    sys.exit(main())
