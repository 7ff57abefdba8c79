"""What the allocator hook costs: ns per allocation and free, beside PyTorch's own recorder.

    python benchmarks/hook_overhead.py [--rounds 5] [-o results.json]
    python benchmarks/hook_overhead.py --threads 8      # contention: one stream a thread

Each way of recording runs in processes of its own, taking turns, so that drift of the machine hits
all alike. A process warms up, then times bursts of allocate-and-free pairs in a C++ loop on blocks
that are cached; between bursts the drain empties the ring, so that nothing is dropped. Printed is
the minimum over all bursts of all processes (what the code costs) and their median (what a machine
with other things to do makes of it).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODES = {
    "native": "torch's allocator alone",
    "traced": "gpumemtrace, recording to a file",
    "installed": "gpumemtrace, no session",
    "history": "_record_memory_history without stacks",
    "history+python": "_record_memory_history with Python stacks",
}
SIZES = {"1 KiB": 1 << 10, "4 MiB": 4 << 20}
PAIRS = 2_000


def measure_here(mode: str, bursts: int, threads: int) -> dict[str, list[float]]:
    """Run in a child: ns per pair of each burst, by size."""
    import torch

    from gpumemtrace.capture import allocator

    if mode in ("traced", "installed"):
        allocator.ensure_installed()
    allocator.library_path()  # loads the hook's library, which has the loop
    from gpumemtrace import _core, _torch_hook

    torch.empty(1, device="cuda")
    with tempfile.TemporaryDirectory() as folder:
        if mode == "traced":
            _core.session_start(f"{folder}/t.gmt", metadata_json="{}", ring_bytes=64 << 20)
            allocator.record_baseline()
        if mode.startswith("history"):
            stacks = {"context": "all", "stacks": "python"} if "+" in mode else {"context": None}
            torch.cuda.memory._record_memory_history(max_entries=2 * PAIRS, **stacks)
        result = {}
        for name, size in SIZES.items():
            pairs = max(1, PAIRS // threads)
            _torch_hook.time_pairs(size, pairs, threads)
            times = []
            for _ in range(bursts):
                time.sleep(0.002)
                times.append(_torch_hook.time_pairs(size, pairs, threads) / (pairs * threads))
            result[name] = times
        if mode == "traced":
            stats = _core.session_stop("{}")
            assert stats["dropped"] == 0, stats
            assert stats["events"] >= 2 * pairs * threads * (bursts + 1) * len(SIZES), stats
    return result


def measure(rounds: int, bursts: int, threads: int) -> dict[str, dict[str, list[float]]]:
    """Run all modes in turn, `rounds` times, each in a process of its own."""
    times: dict[str, dict[str, list[float]]] = {m: {s: [] for s in SIZES} for m in MODES}
    command = [sys.executable, __file__, "--bursts", str(bursts), "--threads", str(threads)]
    for _ in range(rounds):
        for mode in MODES:
            child = subprocess.run(
                [*command, "--child", mode], stdout=subprocess.PIPE, text=True, check=True
            )
            for size, values in json.loads(child.stdout.splitlines()[-1]).items():
                times[mode][size] += values
    return times


def summarise(times: dict[str, dict[str, list[float]]]) -> list[dict[str, Any]]:
    """Reduce to one row for each mode and size; ``added_ns`` is against ``native``."""
    rows = []
    for size in SIZES:
        native = times["native"][size]
        for mode, by_size in times.items():
            values = by_size[size]
            rows.append(
                {
                    "size": size,
                    "mode": mode,
                    "min_ns": round(min(values), 1),
                    "median_ns": round(statistics.median(values), 1),
                    "added_min_ns": round(min(values) - min(native), 1),
                    "added_median_ns": round(
                        statistics.median(values) - statistics.median(native), 1
                    ),
                    "bursts": len(values),
                }
            )
    return rows


def describe_machine() -> dict[str, Any]:
    """Name device and versions, so that a table can be read later."""
    code = (
        "import torch, json; p = torch.cuda.get_device_properties(0);"
        "print(json.dumps({'device': p.name, 'torch': str(torch.__version__)}))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    )
    return {
        **json.loads(out.stdout.splitlines()[-1]),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(["python", "benchmarks/hook_overhead.py", *sys.argv[1:]]),
    }


def print_table(rows: list[dict[str, Any]], machine: dict[str, Any]) -> None:
    """Print the rows, one block a size."""
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    print(f"{'ns per alloc+free pair':<44}{'min':>9}{'median':>9}{'added min':>11}{'median':>9}")
    for row in rows:
        if row["mode"] == "native":
            print(row["size"])
        print(
            f"  {MODES[row['mode']]:<42}{row['min_ns']:>9}{row['median_ns']:>9}"
            f"{row['added_min_ns']:>11}{row['added_median_ns']:>9}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="processes for each mode")
    parser.add_argument("--bursts", type=int, default=200, help="bursts in each process")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, help="write machine and rows as JSON")
    parser.add_argument("--child", choices=MODES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure_here(options.child, options.bursts, options.threads)))
        return
    machine = describe_machine()
    rows = summarise(measure(options.rounds, options.bursts, options.threads))
    print_table(rows, machine)
    if options.output:
        text = json.dumps({"machine": machine, "rows": rows}, indent=1)
        options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
