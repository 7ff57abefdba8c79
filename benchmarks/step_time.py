"""Step time with the tracer on and off and beside PyTorch's own recorder, in one process.

    python benchmarks/step_time.py gpt2 resnet50 qwen --rounds 20 --steps 8
    python benchmarks/step_time.py gpt2 --modes off traced --rounds 100 --steps 4   # sharper

A round runs a block of steps in each mode, in an order that changes from round to round, so that a
machine that speeds up or slows down hits all modes alike. A mode's overhead is the median over
rounds of its block's median step against that of ``off`` in the same round, with the 95 % interval
that resampling the rounds gives, and quartiles over rounds. ``off`` has the hook in
place and no session; hook_overhead.py shows what that costs against torch's allocator alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import gpumemtrace

MODES = ("off", "traced", "history", "history+python")


def record_history(mode: str | None) -> None:
    """Switch torch's own recorder to what ``mode`` says."""
    contexts = {"history": None, "history+python": "all"}
    if mode in contexts:
        torch.cuda.memory._record_memory_history(
            max_entries=100_000, stacks="python", context=contexts[mode]
        )
    else:
        torch.cuda.memory._record_memory_history(enabled=None)


def measure_here(
    workload: str, modes: list[str], rounds: int, steps: int, warmup: int
) -> dict[str, list[float]]:
    """Run in a child: mode -> median step of each round's block, in ms."""
    from workloads import WORKLOADS, train

    folder = tempfile.TemporaryDirectory()
    plan = [modes[(i + turn) % len(modes)] for turn in range(rounds) for i in range(len(modes))]
    medians: dict[str, list[float]] = {mode: [] for mode in modes}
    block: list[float] = []
    last = 0.0
    session = gpumemtrace.install(Path(folder.name) / "warmup.gmt")
    session.close()

    def switch(to: str | None) -> None:
        nonlocal session
        session.close()
        record_history(to)
        if to == "traced":
            session = gpumemtrace.install(Path(folder.name) / f"{len(medians['traced'])}.gmt")

    def after_step(step: int, loss: torch.Tensor) -> None:
        nonlocal last, block
        torch.cuda.synchronize()
        position = step - warmup
        if position >= 0:
            block.append(time.perf_counter() - last)
            if (position + 1) % (steps + 1) == 0:  # the first step of a block settles in
                medians[plan[position // (steps + 1)]].append(1e3 * statistics.median(block[1:]))
                block = []
        if (position + 1) % (steps + 1) == 0 and position + 1 >= 0:
            following = (position + 1) // (steps + 1)
            switch(plan[following] if following < len(plan) else None)
        last = time.perf_counter()

    train(WORKLOADS[workload], warmup + len(plan) * (steps + 1), after_step)
    return medians


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, by drawing as many values again, 4,000 times."""
    drawn = np.random.default_rng(0).choice(values, (4_000, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=8, help="timed steps of a block")
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write every block's median here")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        sizes = (args.rounds, args.steps, args.warmup)
        print(json.dumps(measure_here(args.workloads[0], args.modes, *sizes)))
        return

    collected = {}
    print(
        "| workload | mode | step, ms (median) | best block, ms | against off | 95 % | quartiles |"
    )
    print("|---|---|---|---|---|---|---|")
    for workload in args.workloads:
        command = [sys.executable, __file__, workload, "--child", "--rounds", str(args.rounds)]
        command += ["--steps", str(args.steps), "--warmup", str(args.warmup)]
        command += ["--modes", *args.modes]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
        medians = collected[workload] = json.loads(done.stdout.strip().splitlines()[-1])
        for mode in args.modes:
            ratios = [100 * (a / b - 1) for a, b in zip(medians[mode], medians["off"], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            least, most = interval_of_median(ratios)
            print(
                f"| {workload} | {mode} | {statistics.median(medians[mode]):.3f} | "
                f"{min(medians[mode]):.3f} | {middle:+.2f} % | {least:+.2f} … {most:+.2f} % | "
                f"{low:+.2f} … {high:+.2f} % |",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps(collected))


if __name__ == "__main__":
    main()
