"""What recording adds to an allocation and its free, watched as a ratio, loosely."""

from pathlib import Path

import pytest
from simgpu import result_of, run_simulated

pytestmark = pytest.mark.simgpu

BENCHMARK = Path(__file__).resolve().parent.parent / "benchmarks" / "hook_overhead.py"

# Seen on a quiet machine: 1.17 at 1 KiB, 1.21 at 4 MiB; with the allocator's counters read for each
# block of 4 MiB, 1.43.
MOST = 1.4


def test_a_pair_costs_little_more_at_any_size() -> None:
    best: dict[tuple[str, str], float] = {}
    for _ in range(4):  # the machine may have other things to do: the least of several tries
        for mode in ("native", "traced"):
            done = run_simulated(BENCHMARK, args=["--child", mode, "--bursts", "60"])
            for size, times in result_of(done).items():
                best[mode, size] = min([*times, best.get((mode, size), float("inf"))])
        ratios = {
            size: best["traced", size] / time
            for (mode, size), time in best.items()
            if mode == "native"
        }
        if max(ratios.values()) < MOST:
            return
    pytest.fail(f"ns per pair, traced against native: {ratios}")
