"""How long a large trace takes to summarise and to draw, and how much memory.

    python benchmarks/reading.py --events 1e7

Writes a synthetic trace (see synthetic_trace.py), then runs each question in a process of its own:
seconds by the clock, seconds of the processor, nanoseconds of the processor per event, peak memory.
Processor time is what to compare: others may use the machine.
"""

from __future__ import annotations

import argparse
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from synthetic_trace import write_trace

import gpumemtrace


def summary(path: Path) -> None:
    from gpumemtrace.analysis.answers import find_answers

    find_answers(gpumemtrace.open(path))


def timeline(path: Path) -> None:
    from gpumemtrace.analysis.timeline import build_timeline

    build_timeline(gpumemtrace.open(path))


def picture(path: Path) -> None:
    from gpumemtrace.analysis.timeline import build_timeline
    from gpumemtrace.plot.timeline import draw_timeline

    figure = draw_timeline(build_timeline(gpumemtrace.open(path)))
    figure.savefig(path.with_suffix(".png"), dpi=150)


def three_steps(path: Path) -> None:
    from gpumemtrace.analysis.timeline import build_timeline

    build_timeline(gpumemtrace.open(path).slice(steps=(100, 103)))


def last_steps(path: Path) -> None:
    from gpumemtrace.analysis.timeline import build_timeline

    trace = gpumemtrace.open(path)
    steps = int(trace.run_record["steps"])
    build_timeline(trace.slice(steps=(steps - 6, steps - 3)))


def oom(path: Path) -> None:
    assert gpumemtrace.open(path).oom().failed == 1


def fragmentation(path: Path) -> None:
    from gpumemtrace.analysis.fragmentation import find_fragmentation

    find_fragmentation(gpumemtrace.open(path))


def lifetimes(path: Path) -> None:
    gpumemtrace.open(path).lifetimes()


def columns(path: Path) -> None:
    gpumemtrace.open(path).columns("time_ns", "size_bytes")


_ALL = (three_steps, last_steps, timeline, picture, summary, fragmentation, oom, lifetimes, columns)
QUESTIONS = {f.__name__: f for f in _ALL}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=lambda text: int(float(text)), default=10_000_000)
    parser.add_argument("--variable-length", action="store_true", help="no two steps alike")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=[*QUESTIONS])
    parser.add_argument("--keep", type=Path, help="write the trace here and keep it")
    parser.add_argument("--question", choices=QUESTIONS, help=argparse.SUPPRESS)
    parser.add_argument("--trace", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.question:
        QUESTIONS[args.question](args.trace)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = args.keep or Path(folder) / "synthetic.gmt"
        length = args.variable_length
        steps = write_trace(path, events=args.events, variable_length=length, failed_request=True)
        size = path.stat().st_size
        print(
            f"{args.events:,} events in {steps:,} steps, {size / args.events:.2f} bytes/event; "
            f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}"
        )
        print(f"{'':14}{'wall s':>9}{'cpu s':>9}{'cpu ns/event':>14}{'peak MiB':>10}")
        for question in args.only:
            measure(question, path, args.events)


def measure(question: str, path: Path, events: int) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    subprocess.run([sys.executable, __file__, "--question", question, "--trace", path], check=True)
    wall = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # The largest child so far: the questions are in order of their appetite for memory.
    memory = after.ru_maxrss / 1024
    print(f"{question:14}{wall:9.2f}{cpu:9.2f}{cpu / events * 1e9:14.0f}{memory:10.0f}", flush=True)


if __name__ == "__main__":
    main()
