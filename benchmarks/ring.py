"""What recording an event costs its thread, and what the drain keeps up with.

    python benchmarks/ring.py [--seconds 10] [--folder DIR] [--ring-mib 8 16]

Builds benchmarks/native/ring_push (in build/bench, optimised as the package is) and runs it. The
first table is about one push, beside what reading the clock costs and what the clock and one atomic
fetch_add cost: below that no shared ring can go. The ring lies in shared memory, as a session's
does. "flat out" is the median of bursts of 512; "paced"
times them one by one, each after 1 MB of other memory traffic. The second table sends events at a
fixed rate through the real pipeline: ring, drain, encoder, file in DIR.

Compare within one run: other work on the machine shows in all of it.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"


def build() -> Path:
    configure = ["cmake", "-S", ROOT, "-B", BUILD, "-DCMAKE_BUILD_TYPE=Release"]
    subprocess.run(
        [*configure, "-DGPUMEMTRACE_BENCHMARKS=ON"], check=True, stdout=subprocess.DEVNULL
    )
    subprocess.run(
        ["cmake", "--build", BUILD, "--target", "ring_push", "-j", str(os.cpu_count())],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return BUILD / "benchmarks" / "native" / "ring_push"


def run(program: Path, *args: object) -> dict[str, Any]:
    out = subprocess.run([program, *map(str, args)], check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(out.stdout)
    return result


def push_table(push: dict[str, Any], paced: dict[str, Any]) -> Table:
    table = Table(title="one push, ns", title_justify="left")
    table.add_column("")
    for heading in ("flat out", "against the clock", "paced: p50", "p99", "p99.9"):
        table.add_column(heading, justify="right")
    for name, key, paced_key in (
        ("the clock alone", "rdtsc_ns", "rdtsc"),
        ("the clock and a fetch_add", "rdtsc_and_fetch_add_ns", "rdtsc_and_fetch_add"),
        ("push", "push_ns", "push"),
        ("push, into private memory", "push_private_ns", None),
        ("push, two producers", "two_producers_ns", None),
    ):
        tail = (
            [f"{paced[paced_key][p]:.0f}" for p in ("p50_ns", "p99_ns", "p999_ns")]
            if paced_key
            else []
        )
        table.add_row(name, f"{push[key]:.1f}", f"{push[key] / push['rdtsc_ns']:.2f}x", *tail)
    return table


def pipeline_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="ring, drain, encoder and file", title_justify="left")
    for heading in (
        "events/s",
        "reached",
        "producers",
        "ring",
        "dropped",
        "ring used",
        "drain: of a core",
        "ns/event",
        "B/event",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            f"{row['wanted_per_s'] / 1e6:g} M",
            f"{row['reached_per_s'] / 1e6:.2f} M",
            str(row["threads"]),
            f"{row['ring_events'] * 64 >> 20} MiB",
            f"{row['dropped']:,} of {row['events']:,.0f}",
            f"{row['high_water'] / row['ring_events']:.0%}",
            f"{row['drain_cpu_share']:.1%}",
            f"{row['drain_ns_per_event']:.0f}",
            f"{row['bytes_per_event']:.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, help="where the trace is written (default: /tmp)")
    parser.add_argument("--ring-mib", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON lines")
    options = parser.parse_args()
    program = build()
    push, paced = run(program, "push"), run(program, "paced")
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "ring.gmt"
        for rate in (1e6, 5e6):
            for mib in options.ring_mib:
                rows.append(run(program, "pipeline", path, rate, options.seconds, 1, mib << 20))
    if options.json:
        for row in (push, paced, *rows):
            print(json.dumps(row))
        return
    console = Console(width=120)
    console.print(push_table(push, paced))
    console.print(pipeline_table(rows))


if __name__ == "__main__":
    main()
