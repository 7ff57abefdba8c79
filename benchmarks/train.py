"""Train one workload and write torch's own memory counters at the end of every step.

    gpumemtrace run benchmarks/train.py gpt2 --steps 20 --counters counters.json

Runs with and without the tracer; under it, a mark named ``counters <step>`` goes into the trace at
the instant the counters are read, so that ``parity.py`` can compare the two.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from workloads import WORKLOADS, train

LINES = ("requested", "allocated", "active", "reserved")


def read_counters() -> dict[str, dict[str, int]]:
    """``{line: {current, peak}}`` in bytes, from ``torch.cuda.memory_stats()``."""
    stats = torch.cuda.memory_stats()
    return {
        line: {when: stats[f"{line}_bytes.all.{when}"] for when in ("current", "peak")}
        for line in LINES
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--counters", type=Path, help="write counters and losses here, as JSON")
    args = parser.parse_args()

    try:
        from gpumemtrace import mark
    except ImportError:  # the untraced reference may run where the package is not installed

        def mark(text: str) -> None: ...

    counters: list[dict[str, dict[str, int]]] = []
    losses: list[torch.Tensor] = []

    def after_step(step: int, loss: torch.Tensor) -> None:
        losses.append(loss.detach().cpu())
        mark(f"counters {step}")
        counters.append(read_counters())

    train(WORKLOADS[args.workload], args.steps, after_step)
    if args.counters:
        bits = [loss.view(torch.int32).item() for loss in losses]
        args.counters.write_text(json.dumps({"counters": counters, "loss_bits": bits}))


if __name__ == "__main__":
    main()
