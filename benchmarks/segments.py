"""What replaying the allocator's segments costs, per event, in steady state.

    gpumemtrace simulate -o train.gmt benchmarks/train.py gpt2 --steps 10
    python benchmarks/segments.py train.gmt --steps 4:8

Reads those steps of a trace into memory and replays them again and again, as a long run would be:
without and with the lines of free bytes by cause. The minimum of several rounds.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import gpumemtrace
from gpumemtrace import _core
from gpumemtrace.records import RAW_COLUMNS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--steps", default="4:8", help="A:B, steps that end as they begin")
    parser.add_argument("--rounds", type=int, default=50)
    args = parser.parse_args()
    first, end = map(int, args.steps.split(":"))
    part = gpumemtrace.open(args.trace).slice(steps=(first, end))
    before, inside = [], []
    for batch in part.chunks(lead_in=True):
        (before if batch.is_lead_in else inside).append(batch.raw)
    joined = {name: np.concatenate([raw[name] for raw in inside]) for name in RAW_COLUMNS}
    events = len(part)
    print(f"{events:,} events in steps {args.steps}, {len(joined['kind']):,} records")
    for what in ("feed", "feed_lines"):
        replay = _core.SegmentReplay()
        for raw in before:
            replay.feed(raw)
        best = float("inf")
        for _ in range(args.rounds):
            begun = time.process_time()
            getattr(replay, what)(joined)
            best = min(best, time.process_time() - begun)
        totals = replay.totals(part.devices[0])
        print(f"{what:12}{best / events * 1e9:6.1f} ns/event   known: {totals['known']}")


if __name__ == "__main__":
    main()
