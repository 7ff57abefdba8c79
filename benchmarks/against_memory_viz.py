"""How long PyTorch's own tools take to read a snapshot, beside ours on the same events.

    python benchmarks/against_memory_viz.py --entries 1e6

The entries repeat a training step: blocks are allocated in forward and freed in backward. PyTorch's
side loads the pickle and calls the functions of `torch.cuda._memory_viz`, each in a process of its
own; our side opens a trace of the same allocs and frees. Processor seconds, peak memory.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import pickle
import platform
import resource
import subprocess
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

import gpumemtrace

BLOCKS_A_STEP = 500
SLOT = 8 << 20
BASE = 0x7F0000000000


def entries(count: int) -> list[dict[str, Any]]:
    """Snapshot entries: an alloc, and for each free what torch writes for it (two entries)."""
    sizes = np.random.default_rng(0).choice([512, 1 << 20, 6 << 20], BLOCKS_A_STEP).tolist()
    made: list[dict[str, Any]] = []
    time_us = 0
    while len(made) < count:
        for kinds, order in (
            (("alloc",), range(BLOCKS_A_STEP)),
            (("free_requested", "free_completed"), reversed(range(BLOCKS_A_STEP))),
        ):
            for block in order:
                for action in kinds:
                    time_us += 10
                    made.append(
                        {
                            "action": action,
                            "addr": BASE + block * SLOT,
                            "size": sizes[block],
                            "stream": 0,
                            "time_us": time_us,
                            "frames": [],
                        }
                    )
    return made[:count]


def write_both(folder: Path, count: int) -> tuple[Path, Path, int]:
    made = entries(count)
    snapshot = folder / "snapshot.pickle"
    with snapshot.open("wb") as file:
        pickle.dump({"segments": [], "device_traces": [made]}, file)
    events = [entry for entry in made if entry["action"] in ("alloc", "free_completed")]
    is_alloc = np.array([entry["action"] == "alloc" for entry in events])
    trace = folder / "trace.gmt"
    gpumemtrace.Trace.from_events(
        {
            "time_ns": np.array([entry["time_us"] * 1000 for entry in events]),
            "kind": np.where(is_alloc, 1, 2),
            "address": np.array([entry["addr"] for entry in events]),
            "size_bytes": np.where(is_alloc, [entry["size"] for entry in events], 0),
            "stream": np.zeros(len(events), int),
            "device": np.zeros(len(events), int),
            "thread": np.ones(len(events), int),
        }
    ).save(trace)
    return snapshot, trace, len(events)


def memory_viz() -> Any:
    """torch's module alone: it is plain Python, and importing torch would be timed with it."""
    folder = importlib.metadata.distribution("torch").locate_file("torch/cuda/_memory_viz.py")
    spec = spec_from_file_location("_memory_viz", str(folder))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["_memory_viz"] = module
    spec.loader.exec_module(module)
    return module


def load(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)


def torch_load(path: Path) -> None:
    load(path)


def torch_trace(path: Path) -> None:
    memory_viz().trace(load(path))


def torch_trace_plot(path: Path) -> None:
    memory_viz().trace_plot(load(path))


def our_summary(path: Path) -> None:
    from gpumemtrace.analysis.answers import find_answers

    find_answers(gpumemtrace.open(path))


def our_picture(path: Path) -> None:
    from gpumemtrace.analysis.timeline import build_timeline
    from gpumemtrace.plot.timeline import draw_timeline

    draw_timeline(build_timeline(gpumemtrace.open(path))).savefig(path.with_suffix(".png"))


def our_lifetimes(path: Path) -> None:
    gpumemtrace.open(path).lifetimes()


TORCHS = {f.__name__: f for f in (torch_load, torch_trace, torch_trace_plot)}
OURS = {f.__name__: f for f in (our_summary, our_picture, our_lifetimes)}


def measure(question: str, path: Path, timeout_s: float) -> str:
    code = (
        "import re, resource, runpy, sys; sys.argv = sys.argv[1:]; "
        f"runpy.run_path({__file__!r}, run_name='__main__'); "
        "u = resource.getrusage(resource.RUSAGE_SELF); "
        # Not ru_maxrss: that begins with what the parent had.
        "high = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read()); "
        "print(u.ru_utime + u.ru_stime, int(high[1]) / 1024)"
    )
    command = [sys.executable, "-c", code, "x", "--question", question, "--path", str(path)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=True)
    except subprocess.TimeoutExpired:
        return f"{question:18} not done after {timeout_s:.0f} s"
    except subprocess.CalledProcessError as error:
        return f"{question:18} failed: {(error.stderr.splitlines() or ['killed'])[-1]}"
    seconds, mebibytes = map(float, ran.stdout.split()[-2:])
    return f"{question:18}{seconds:9.2f} s of a CPU{mebibytes:9.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=lambda text: int(float(text)), default=1_000_000)
    parser.add_argument("--timeout", type=float, default=300, metavar="S")
    parser.add_argument("--question", choices=TORCHS | OURS, help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.question:
        (TORCHS | OURS)[args.question](args.path)
        return
    resource.setrlimit(resource.RLIMIT_AS, (20 << 30, 20 << 30))  # a reader may want all there is
    with tempfile.TemporaryDirectory() as folder:
        snapshot, trace, events = write_both(Path(folder), args.entries)
        version = importlib.metadata.version("torch")
        print(
            f"{args.entries:,} entries = {events:,} allocs and frees; "
            f"pickle {snapshot.stat().st_size / 2**20:,.0f} MiB, "
            f"trace {trace.stat().st_size / 2**20:,.1f} MiB; "
            f"torch {version}, Python {platform.python_version()}, {platform.machine()}"
        )
        for question in TORCHS:
            print(measure(question, snapshot, args.timeout), flush=True)
        for question in OURS:
            print(measure(question, trace, args.timeout), flush=True)


if __name__ == "__main__":
    main()
