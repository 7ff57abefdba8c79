"""Step time with the tracer on and off and beside PyTorch's own recorder, alternating processes.

    python benchmarks/overhead.py gpt2 resnet50 qwen --rounds 3

Every round runs each mode once, in a fresh process, in an order that alternates; a mode's figure is
the median over rounds of its block medians, its overhead the median of the per-round ratios to
``off``. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
MODES = ("off", "traced", "history-none", "history-python")


def measure(workload: str, mode: str, steps: int, blocks: int, folder: str) -> list[float]:
    """Block medians in ms of one fresh process."""
    name, _, stacks = mode.partition("-")
    script = [str(HERE / "step_time.py"), workload, "--mode", name, "--steps", str(steps)]
    script += ["--blocks", str(blocks), "--stacks", stacks or "none"]
    command = [sys.executable]
    if mode == "traced":
        output = str(Path(folder) / f"{workload}.gmt")
        command += ["-m", "gpumemtrace", "run", "-q", "-f", "-o", output]
    done = subprocess.run(command + script, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise SystemExit(f"{' '.join(command + script)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])["block_median_ms"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--json", type=Path, help="write every block median here")
    args = parser.parse_args()

    collected: dict[str, dict[str, list[list[float]]]] = {}
    print("| workload | mode | step, ms | against off | spread of rounds |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for workload in args.workloads:
            runs: dict[str, list[list[float]]] = {mode: [] for mode in args.modes}
            for turn in range(args.rounds):
                order = args.modes if turn % 2 == 0 else args.modes[::-1]
                for mode in order:
                    runs[mode].append(measure(workload, mode, args.steps, args.blocks, folder))
            collected[workload] = runs
            base = [statistics.median(blocks) for blocks in runs["off"]]
            for mode in args.modes:
                medians = [statistics.median(blocks) for blocks in runs[mode]]
                ratios = [m / b for m, b in zip(medians, base, strict=True)]
                print(
                    f"| {workload} | {mode} | {statistics.median(medians):.3f} | "
                    f"{100 * (statistics.median(ratios) - 1):+.2f} % | "
                    f"{100 * (min(ratios) - 1):+.2f} … {100 * (max(ratios) - 1):+.2f} % |",
                    flush=True,
                )
    if args.json:
        args.json.write_text(json.dumps(collected))


if __name__ == "__main__":
    main()
