"""Whether a long recording stays as it is: memory, losses, cost, and a file good at both ends.

    python benchmarks/soak.py [--events 1e9] [--rate 5e6] [--folder DIR] [--max-disk 200MiB]

Builds benchmarks/native/soak (optimised as the package is), which sends events at a fixed rate
through the real pipeline (ring, drain, encoder, file in DIR; 1e9 take 200 s and 250 MB), looks at
itself every few seconds, and reads the first and the last chunk back. Prints the curve as a table,
then a verdict for each thing that must hold. Exit status 1 when one does not. With ``--max-disk``
the limit must hold, too, and the drain may take half a core.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gpumemtrace.units import parse_bytes

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"
MIB = 1 << 20


def build() -> Path:
    configure = ["cmake", "-S", ROOT, "-B", BUILD, "-DCMAKE_BUILD_TYPE=Release"]
    subprocess.run(
        [*configure, "-DGPUMEMTRACE_BENCHMARKS=ON"], check=True, stdout=subprocess.DEVNULL
    )
    subprocess.run(
        ["cmake", "--build", BUILD, "--target", "soak", "-j", str(os.cpu_count())],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return BUILD / "benchmarks" / "native" / "soak"


def curve(looks: list[dict[str, Any]]) -> Table:
    table = Table(title="while it recorded", title_justify="left")
    sizes = ("RSS, MiB", "file, MB", "most on disk, MB")
    for heading in ("s", "events", "dropped", *sizes, "drain, of a core"):
        table.add_column(heading, justify="right")
    before = looks[0]
    for look in looks[1:]:
        seconds = look["seconds"] - before["seconds"]
        table.add_row(
            f"{look['seconds']:.0f}",
            f"{look['events']:,}",
            str(look["dropped"]),
            f"{look['rss_bytes'] / MIB:.2f}",
            f"{look['file_bytes'] / 1e6:.1f}",
            f"{look['most_disk_bytes'] / 1e6:.1f}",
            f"{(look['drain_cpu_s'] - before['drain_cpu_s']) / seconds:.1%}",
        )
        before = look
    return table


def verdicts(
    looks: list[dict[str, Any]], end: dict[str, Any], read: dict[str, Any], max_disk_bytes: int
) -> dict[str, bool]:
    """Return what must hold, with its figures, and whether it does."""
    resident = [look["rss_bytes"] / MIB for look in looks[1:]]
    spread = max(resident) - min(resident)
    share = end["drain_cpu_s"] / end["seconds"]
    rate = end["events"] / end["seconds"]
    most_share = 0.5 if max_disk_bytes else 0.1
    disk = {
        f"disk cap held: {end['most_disk_bytes'] / MIB:.1f} MiB at most, of "
        f"{max_disk_bytes / MIB:.1f}": end["most_disk_bytes"] <= max_disk_bytes,
    }
    return (disk if max_disk_bytes else {}) | {
        f"RSS flat within 64 MiB: {min(resident):.1f} to {max(resident):.1f} MiB": spread <= 64,
        f"no drop: {end['dropped']} of {end['events']:,} at {rate / 1e6:.2f} M/s": not end[
            "dropped"
        ],
        f"drain at most {most_share:.0%} of a core: {share:.1%}": share <= most_share,
        f"{read['told']:,} allocs and frees are in the file or counted as left out, of "
        f"{read['made']:,} less those dropped": read["told"] + end["dropped"] == read["made"],
        f"closed, {read['events']:,} events in {read['chunks']:,} chunks, opened in "
        f"{read['open_s'] * 1e3:.0f} ms": read["closed"] and not read["problems"],
        "first and last chunk are what was made": read["first_chunk_as_made"]
        and read["last_chunk_as_made"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--events", type=float, default=1e9)
    parser.add_argument("--rate", type=float, default=5e6, help="events a second")
    parser.add_argument("--folder", type=Path, help="where the trace is written (default: /tmp)")
    parser.add_argument("--ring-mib", type=int, default=8)
    parser.add_argument("--max-disk", type=parse_bytes, default=0, help="such as 200MiB")
    parser.add_argument("--looks", type=int, default=20, help="rows of the table")
    parser.add_argument("--from-json", type=Path, help="the program's output of another run")
    options = parser.parse_args()
    if options.from_json:
        output = options.from_json.read_text()
    else:
        program = build()
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            every_s = options.events / options.rate / options.looks
            arguments = [Path(folder) / "soak.gmt", options.events, options.rate]
            arguments += [options.ring_mib * MIB, every_s, options.max_disk]
            output = subprocess.run(
                [program, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True
            ).stdout
    *looks, end, read = map(json.loads, output.splitlines())
    every = max(1, (len(looks) - 1) // options.looks)
    console = Console(width=120)
    console.print(curve(looks[::every]))
    found = verdicts(looks, end, read, options.max_disk)
    for what, holds in found.items():
        console.print(("yes  " if holds else "NO   ") + what, highlight=False)
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
