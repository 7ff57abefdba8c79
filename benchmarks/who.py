"""What it costs to know who asked for memory: modules and call sites, beside PyTorch's recorder.

    python benchmarks/who.py                                  # on a GPU
    python benchmarks/who.py --workloads gpt2 qwen --rounds 10
    gpumemtrace simulate --phases none benchmarks/who.py --workloads          # no GPU: no steps

One table in Markdown. Every way of recording is measured in one process (a child for each
workload), in rounds whose order rotates, against `traced` (a session without modules and stacks) of
the same round; medians over rounds, quartiles in brackets.

pair        allocate and free 1 KiB, in a C++ loop on a cached block, called through 20 Python
            functions within a module: ns added to a pair
module call a module whose forward does nothing: ns added to a call
step        a training step: us added, and what that is of the step. With `3 of 100 steps` stacks
            are on in three steps of each hundred, and the mean over the hundred counts

A stack that was not seen before, and a frame of it that is new, cost more, once: the last lines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import gpumemtrace

MIB = 1 << 20
DEPTH = 20
PAIRS = 500
CALLS = 200

# Options of a session; None: a session that records nothing more, and torch's recorder.
MODES: dict[str, dict[str, Any] | None] = {
    "traced": {},
    "modules": {"modules": True},
    "stacks": {"stacks": "python"},
    "stacks >= 1 MiB": {"stacks": "python", "stacks_min_bytes": MIB},
    "stacks, 3 of 100 steps": {"stacks": "python", "stacks_steps": range(50, 53)},
    "modules and stacks": {"modules": True, "stacks": "python"},
    "_record_memory_history, Python stacks": None,
}
ROUND_STEPS = 100
Times = dict[str, list[float]]


class Recording:
    """One way of recording after the other, each in a file of its own."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._files = 0
        # Before there is memory in use: later sessions may begin at any time.
        self._session: Any = gpumemtrace.install(self._folder / "first.gmt")

    def switch(self, mode: str | None) -> None:
        """End what goes on and begin ``mode``; None: nothing more."""
        if self._session is not None:
            self._session.close()
            if self._session.stats.dropped:
                raise SystemExit(f"events were lost: {self._session.stats}")
        self._session = None
        torch.cuda.memory._record_memory_history(enabled=None)
        if mode is None:
            return
        self._files += 1
        options = MODES[mode]
        path = self._folder / f"{self._files}.gmt"
        self._session = gpumemtrace.install(path, ring_bytes=64 * MIB, **(options or {}))
        if options is None:
            torch.cuda.memory._record_memory_history(
                max_entries=100_000, stacks="python", context="all"
            )


def nested(depth: int, function: Callable[[], Any]) -> Any:
    """Call ``function`` through so many more functions."""
    return nested(depth - 1, function) if depth else function()


class Runs(torch.nn.Module):
    """Runs a function as its forward."""

    def forward(self, function: Callable[[], Any]) -> Any:
        return function()


class Nothing(torch.nn.Module):
    def forward(self) -> None:
        pass


def rotated(modes: list[str], rounds: int) -> list[tuple[int, str]]:
    """Each mode once a round, in an order that changes from round to round."""
    return [
        (turn, modes[(i + turn) % len(modes)]) for turn in range(rounds) for i in range(len(modes))
    ]


def measure_calls(rounds: int, folder: str) -> dict[str, Times]:
    """Return ns per pair and per module call, by mode."""
    from gpumemtrace import _torch_hook

    pairs: Times = {mode: [] for mode in MODES}
    calls: Times = {mode: [] for mode in MODES}
    recording, outer, module = Recording(folder), Runs(), Nothing()
    for _, mode in rotated(list(MODES), rounds):
        recording.switch(mode)
        if mode == "stacks, 3 of 100 steps":
            gpumemtrace.stacks(False)  # as in the other 97

        def burst() -> float:
            _torch_hook.time_pairs(1024, PAIRS // 5)
            return _torch_hook.time_pairs(1024, PAIRS) / PAIRS

        best = [outer(lambda: nested(DEPTH, burst)) for _ in range(5)]
        pairs[mode].append(min(best))

        def call_many() -> float:
            since = time.perf_counter_ns()
            for _ in range(CALLS):
                module()
            return (time.perf_counter_ns() - since) / CALLS

        calls[mode].append(min(call_many() for _ in range(50)))
        time.sleep(0.002)
    recording.switch(None)
    return {"pairs": pairs, "calls": calls}


def measure_steps(workload: str, rounds: int, folder: str, warmup: int = 10) -> Times:
    """Return the mean step of each mode's hundred steps, in us, by mode."""
    from workloads import WORKLOADS, train

    plan = [mode for _, mode in rotated(list(MODES), rounds)]
    means: Times = {mode: [] for mode in MODES}
    recording = Recording(folder)
    block: list[float] = []
    last = 0.0

    def after_step(step: int, loss: torch.Tensor) -> None:
        nonlocal last, block
        torch.cuda.synchronize()
        position = step - warmup
        if position >= 0:
            block.append(1e6 * (time.perf_counter() - last))
            if len(block) == ROUND_STEPS + 1:  # the first step of a block settles in
                means[plan[position // (ROUND_STEPS + 1)]].append(statistics.mean(block[1:]))
                block = []
        if position + 1 >= 0 and (position + 1) % (ROUND_STEPS + 1) == 0:
            following = (position + 1) // (ROUND_STEPS + 1)
            recording.switch(plan[following] if following < len(plan) else None)
        last = time.perf_counter()

    train(WORKLOADS[workload], warmup + len(plan) * (ROUND_STEPS + 1), after_step)
    return means


def measure_new_stacks(folder: str, count: int = 2000) -> dict[str, float]:
    """Return ns of a stack seen before, of a new one of known functions, and of a new function."""
    from gpumemtrace import _torch_hook

    known: list[float] = []
    with gpumemtrace.install(Path(folder) / "new.gmt", stacks="python"):
        for _ in range(20):
            known.append(nested(DEPTH, lambda: _torch_hook.time_sites(1024, 1000)) / 1000)
        lines = "\n".join("    sites(1024, 1)" for _ in range(count))
        names = {"sites": _torch_hook.time_sites}
        exec(f"def known_function():\n{lines}\ndef other():\n    sites(1024, 1)", names)
        names["other"]()
        since = time.perf_counter_ns()
        nested(DEPTH, names["known_function"])
        new_line = (time.perf_counter_ns() - since) / count
        for i in range(count):
            exec(f"def f{i}(): sites(1024, 1)", names)
        since = time.perf_counter_ns()
        for i in range(count):
            names[f"f{i}"]()
        new_code = (time.perf_counter_ns() - since) / count
    return {"seen before": min(known), "new": new_line, "with a new function in it": new_code}


def summary(times: Times, mode: str) -> tuple[float, float, float]:
    """Return the median and the quartiles of what the mode adds to `traced` of its round."""
    added = [a - b for a, b in zip(times[mode], times["traced"], strict=True)]
    low, median, high = statistics.quantiles(added, n=4) if len(added) > 1 else added * 3
    return median, low, high


def print_table(results: dict[str, Any]) -> None:
    steps: dict[str, Times] = results["steps"]
    heads = [
        f"step of {name}, us ({statistics.median(t['traced']):,.0f})" for name, t in steps.items()
    ]
    print(f"| added by | pair, ns | module call, ns |{''.join(f' {head} |' for head in heads)}")
    print("|---|---|---|" + "---|" * len(heads))
    for mode in list(MODES)[1:]:
        cells = []
        for name in ("pairs", "calls"):
            median, low, high = summary(results[name], mode)
            cells.append(f"{median:+.0f} ({low:+.0f} … {high:+.0f})")
        for times in steps.values():
            median, low, high = summary(times, mode)
            part = 100 * median / statistics.median(times["traced"])
            cells.append(f"{median:+,.0f} ({low:+,.0f} … {high:+,.0f}), {part:+.2f} %")
        print(f"| {mode} | {' | '.join(cells)} |")
    new = results["new"]
    print(f"\nThe stack of an allocation {DEPTH} functions deep, with the call around it, ns:")
    print(", ".join(f"{what} {time_ns:.0f}" for what, time_ns in new.items()))
    for name in ("pairs", "calls"):
        print(f"traced, {name}: {statistics.median(results[name]['traced']):.0f} ns")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", nargs="*", default=["gpt2"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("-o", "--output", type=Path, help="write every measurement here, as JSON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        with tempfile.TemporaryDirectory() as folder:
            if args.child == "calls":
                torch.empty(1, device="cuda")
                found: Any = measure_calls(args.rounds * 5, folder)
                found["new"] = measure_new_stacks(folder)
            else:
                found = measure_steps(args.child, args.rounds, folder)
        print(json.dumps(found))
        return
    results: dict[str, Any] = {"steps": {}}
    for part in ("calls", *args.workloads):
        command = [sys.executable, __file__, "--child", part, "--rounds", str(args.rounds)]
        own = os.environ | {"GPUMEMTRACE": "0"}  # not recorded by whoever runs this
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=own)
        if done.returncode:
            raise SystemExit(f"{part} failed:\n{done.stderr}")
        measured = json.loads(done.stdout.strip().splitlines()[-1])
        if part == "calls":
            results |= measured
        else:
            results["steps"][part] = measured
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}, Python {sys.version.split()[0]}\n")
    print_table(results)
    if args.output is not None:
        args.output.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
