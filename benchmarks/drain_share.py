"""What the draining thread takes from the program: alloc+free pairs a second with it and without.

    python benchmarks/drain_share.py [--rounds 60] [--pairs 40000]     # or by gpumemtrace simulate

Case C11: nothing is flushed per event, so the program should not notice the thread that writes.
In each round two recordings are made, one after the other, in an order that alternates: one drains
every 5 ms, as ever, one not before its end (the ring holds all of it). Each times one long burst of
pairs on a cached block, flat out, past Python. Of the rounds' ratios the median and the quartiles
are printed. Exit status 1 when the median is 5 % or more. It needs two cores that are free: on one
the two take turns. Measured in a child, so that this works within `gpumemtrace simulate` too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SIZE_BYTES = 1 << 20
WARM_UP_PAIRS = 2000
DRAINS_MS = {"drained": 5, "not drained": 600_000}
MOST_SHARE = 0.05


def time_recording(path: Path, drain_interval_ms: int, pairs: int) -> float:
    """Return the ns per pair of one burst in a recording of its own."""
    from gpumemtrace import _core, _torch_hook

    _core.session_start(str(path), metadata_json="{}", drain_interval_ms=drain_interval_ms)
    _torch_hook.time_pairs(SIZE_BYTES, WARM_UP_PAIRS, 1, through_hook=True)
    time_ns: float = _torch_hook.time_pairs(SIZE_BYTES, pairs, 1, through_hook=True)
    stats = _core.session_stop("{}")
    if stats["dropped"] or stats["events"] < 2 * pairs:
        raise SystemExit(f"events were lost, so the figures mean nothing: {stats}")
    path.unlink()
    return time_ns / pairs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument(
        "--pairs", type=int, default=40_000, help="of a burst; the ring holds 65,536"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.child:
        command = [sys.executable, __file__, "--child", *sys.argv[1:]]
        return subprocess.run(command, env={**os.environ, "GPUMEMTRACE": "0"}).returncode

    import torch

    from gpumemtrace.capture import allocator

    allocator.ensure_installed()
    torch.empty(1, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in DRAINS_MS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            order = list(DRAINS_MS) if number % 2 else list(DRAINS_MS)[::-1]
            for name in order:
                path = Path(folder) / "t.gmt"
                times[name].append(time_recording(path, DRAINS_MS[name], options.pairs))
    for name, values in times.items():
        print(f"{name:<12} min {min(values):.1f} ns, median {np.median(values):.1f} ns a pair")
    ratios = np.array(times["drained"]) / np.array(times["not drained"]) - 1
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    holds = middle < MOST_SHARE
    print(f"{os.cpu_count()} CPUs, {torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(
        f"{'yes' if holds else 'NO '}  the drain takes {middle:+.1%} (quartiles {low:+.1%} … "
        f"{high:+.1%}), less than {MOST_SHARE:.0%}"
    )
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
