"""Step time of one workload under one way of recording, in blocks, for one process.

    python benchmarks/step_time.py gpt2 --mode off --blocks 4 --steps 30
    gpumemtrace run -q -o t.gmt benchmarks/step_time.py gpt2 --mode traced
    python benchmarks/step_time.py gpt2 --mode history --stacks python

Prints one JSON line with the block medians. ``overhead.py`` runs it alternately in all modes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from workloads import WORKLOADS, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--mode", choices=("off", "traced", "history"), default="off")
    parser.add_argument("--stacks", choices=("none", "python"), default="none")
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=30, help="per block")
    parser.add_argument("--warmup", type=int, default=10)
    args = parser.parse_args()

    times: list[float] = []
    last = 0.0

    def after_step(step: int, loss: torch.Tensor) -> None:
        nonlocal last
        torch.cuda.synchronize()
        if step == args.warmup - 1 and args.mode == "history":
            torch.cuda.memory._record_memory_history(
                max_entries=100_000,
                stacks="python",
                context="all" if args.stacks == "python" else None,
            )
        now = time.perf_counter()
        if step >= args.warmup:
            times.append(now - last)
        last = time.perf_counter()

    train(WORKLOADS[args.workload], args.warmup + args.blocks * args.steps, after_step)
    blocks = [times[i : i + args.steps] for i in range(0, len(times), args.steps)]
    print(
        json.dumps(
            {
                "workload": args.workload,
                "mode": args.mode if args.mode != "history" else f"history-{args.stacks}",
                "block_median_ms": [1e3 * statistics.median(block) for block in blocks],
                "min_ms": 1e3 * min(times),
            }
        )
    )


if __name__ == "__main__":
    main()
