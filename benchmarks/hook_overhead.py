"""What the allocator hook costs: ns per allocation and free, beside PyTorch's own recorder.

    python benchmarks/hook_overhead.py [--rounds 400] [-o results.json]
    python benchmarks/hook_overhead.py --threads 8      # contention: one stream a thread

All ways of recording are measured in one process, since two processes of one program differ by more
than the hook costs (where their memory lies, which core they got). A round is a short burst of each
way, in an order that rotates: allocate-and-free pairs in a C++ loop on blocks that are cached, once
through torch's allocator itself, past the hook. What a way adds is its burst less the native burst
of the same round: of these differences the median and the quartiles are printed, beside the minimum
and the median of the bursts. A last loop reads the clock around each pair, for the slow ones.

That one process is a child, so that this works within `gpumemtrace simulate` too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gpumemtrace.schema import Kind
from gpumemtrace.trace_file import TraceFile

MODES = {
    "native": "torch's allocator alone",
    "installed": "gpumemtrace, no session",
    "traced": "gpumemtrace, recording to a file",
    "history": "_record_memory_history without stacks",
    "history+python": "_record_memory_history with Python stacks",
}
BEFORE_SESSION = ["native", "installed"]
IN_SESSION = ["native", "traced", "history", "history+python"]
SIZES = {"1 KiB": 1 << 10, "4 MiB": 4 << 20}
PAIRS = 500  # of a burst
WARM_UP = 100  # pairs before it: caches, and the history's buffer, which then only replaces entries

Bursts = dict[str, list[float]]  # ns per pair of each burst, by mode


def start_history(mode: str) -> None:
    """Have torch record too, if the mode is one of its own."""
    import torch

    stacks = {"context": "all", "stacks": "python"} if "+" in mode else {"context": None}
    torch.cuda.memory._record_memory_history(max_entries=WARM_UP, **stacks)


def time_burst(mode: str, size_bytes: int, threads: int) -> float:
    """Return the ns per pair of one burst."""
    import torch

    from gpumemtrace import _torch_hook

    hooked = mode in ("installed", "traced")
    pairs = max(1, PAIRS // threads)
    if mode.startswith("history"):
        start_history(mode)
    _torch_hook.time_pairs(size_bytes, WARM_UP, 1, through_hook=hooked)
    time_ns = _torch_hook.time_pairs(size_bytes, pairs, threads, through_hook=hooked)
    if mode.startswith("history"):
        torch.cuda.memory._record_memory_history(enabled=None)
    return time_ns / (pairs * threads)


def run_rounds(modes: list[str], size_bytes: int, rounds: int, threads: int) -> Bursts:
    """Measure each mode once a round."""
    bursts: Bursts = {mode: [0.0] * rounds for mode in modes}
    for number in range(-2, rounds):  # two to warm up, overwritten by the last ones
        first = number % len(modes)
        for mode in modes[first:] + modes[:first]:
            bursts[mode][number] = time_burst(mode, size_bytes, threads)
        time.sleep(0.002)  # the drain empties the ring
    return bursts


def time_single_pairs(size_bytes: int, rounds: int) -> dict[str, np.ndarray]:
    """Return the ns of single pairs, native and traced in turns."""
    from gpumemtrace import _torch_hook

    times: dict[str, list[np.ndarray]] = {"native": [], "traced": []}
    for _ in range(rounds):
        for mode, of_mode in times.items():
            hooked = mode == "traced"
            pairs = _torch_hook.time_each_pair(size_bytes, PAIRS, through_hook=hooked)
            of_mode.append(np.asarray(pairs[PAIRS // 10 :]))  # the first ones meet cold caches
        time.sleep(0.001)
    return {mode: np.concatenate(of_mode) for mode, of_mode in times.items()}


def measure(rounds: int, threads: int) -> list[dict[str, Any]]:
    """Return one row for each size and mode. Installs the hook in this process."""
    import torch

    from gpumemtrace import _core
    from gpumemtrace.capture import allocator

    allocator.ensure_installed()
    torch.empty(1, device="cuda")
    rows = []
    before = {
        name: run_rounds(BEFORE_SESSION, size, rounds, threads) for name, size in SIZES.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        _core.session_start(f"{folder}/t.gmt", metadata_json="{}")
        for name, size in SIZES.items():
            during = run_rounds(IN_SESSION, size, rounds, threads)
            single = time_single_pairs(size, rounds) if threads == 1 else {}
            rows += [summarise(name, mode, before[name], during, single) for mode in MODES]
        stats = _core.session_stop("{}")
        check_events(stats, rounds, threads)
    return rows


def check_events(stats: dict[str, Any], rounds: int, threads: int) -> None:
    """Make sure that the traced bursts were recorded, all of them and no others."""
    pairs = (rounds + 2) * (WARM_UP + PAIRS // threads * threads)
    # A thread of several begins with one pair more; single pairs are timed where it is alone.
    pairs += rounds * PAIRS if threads == 1 else (rounds + 2) * threads
    expected = pairs * len(SIZES)
    # Beside these stand the readings of the allocator's counters, many where threads meet.
    kind = TraceFile(stats["path"]).read()["kind"]
    allocs, frees = np.count_nonzero(kind == Kind.ALLOC), np.count_nonzero(kind == Kind.FREE)
    if stats["dropped"] or not allocs == frees == expected:
        raise SystemExit(
            f"expected {expected} allocs and as many frees, not {allocs} and {frees}, so the "
            f"figures mean nothing: {stats}"
        )


def summarise(
    size: str, mode: str, before: Bursts, during: Bursts, single: dict[str, np.ndarray]
) -> dict[str, Any]:
    """Reduce to one row; ``added_*`` are against the native bursts of the same rounds."""
    bursts = before if mode not in during else during
    values, native = np.array(bursts[mode]), np.array(bursts["native"])
    row: dict[str, Any] = {
        "size": size,
        "mode": mode,
        "min_ns": values.min(),
        "median_ns": np.median(values),
        "rounds": len(values),
    }
    if mode != "native":
        added = values - native
        row["added_min_ns"] = values.min() - native.min()
        row["added_median_ns"] = np.median(added)
        row["added_quartiles_ns"] = np.quantile(added, [0.25, 0.75]).tolist()
    if mode in single:
        row["single_median_ns"], row["single_p999_ns"] = np.quantile(single[mode], [0.5, 0.999])
        row["single_pairs"] = len(single[mode])
    return {name: round_values(value) for name, value in row.items()}


def round_values(value: Any) -> Any:
    """Return what JSON can hold, with one decimal."""
    if isinstance(value, list):
        return [round_values(part) for part in value]
    return round(float(value), 1) if isinstance(value, float) else value


def describe_machine() -> dict[str, Any]:
    """Name device and versions, so that a table can be read later."""
    import torch

    return {
        "device": torch.cuda.get_device_properties(0).name,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(["python", "benchmarks/hook_overhead.py", *sys.argv[2:]]),  # --child
    }


def print_table(rows: list[dict[str, Any]], machine: dict[str, Any]) -> None:
    """Print the rows, one block a size."""
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    print(f"{'':44}{'':16}{'added, paired':>31}{'single pairs':>17}")
    print(
        f"{'ns per alloc+free pair':<44}{'min':>8}{'median':>8}"
        f"{'min':>8}{'median':>8}{'quartiles':>15}{'median':>8}{'p99.9':>9}"
    )
    for row in rows:
        if row["mode"] == "native":
            print(row["size"])
        line = f"  {MODES[row['mode']]:<42}{row['min_ns']:>8}{row['median_ns']:>8}"
        if "added_min_ns" in row:
            low, high = row["added_quartiles_ns"]
            between = f"{low} … {high}"
            line += f"{row['added_min_ns']:>8}{row['added_median_ns']:>8}{between:>15}"
        if "single_p999_ns" in row:
            line = f"{line:<91}{row['single_median_ns']:>8}{row['single_p999_ns']:>9}"
        print(line)


def measure_in_child(arguments: list[str]) -> dict[str, Any]:
    """Measure in a process that nobody has touched; return its ``machine`` and ``rows``."""
    child = subprocess.run(
        [sys.executable, __file__, "--child", *arguments],
        env={**os.environ, "GPUMEMTRACE": "0"},
        stdout=subprocess.PIPE,
        text=True,
    )
    if child.returncode != 0:
        raise SystemExit(f"the measuring process ended with status {child.returncode}")
    result: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=400, help="bursts of each mode and size")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, help="write machine and rows as JSON")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        rows = measure(options.rounds, options.threads)
        print(json.dumps({"machine": describe_machine(), "rows": rows}))
        return
    result = measure_in_child(sys.argv[1:])
    print_table(result["rows"], result["machine"])
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
