"""Files made to hurt, given to every command that reads one: an answer or an error of one line.

    python tests/fuzz/fuzz_commands.py [--seconds 60] [--seed 1] [--keep FOLDER]

The containers are whole, so that what is in them is believed: events with numbers at the edge of
what a field holds, run records and tables of names in which values have other types and sizes,
snapshots likewise; now and then bytes are damaged, too. Each file comes from a number, printed with
what was found. Exit status 1 after a finding; its file is then in ``--keep``.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import pickle
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from make_seeds import NAMES, training

from gpumemtrace import _core
from gpumemtrace.cli.main import main as run_command
from gpumemtrace.schema import COLUMNS

READING: tuple[tuple[str, ...], ...] = (
    ("info", "FILE"),
    ("check", "FILE"),
    ("summary", "FILE"),
    ("summary", "FILE", "--json"),
    ("peak", "FILE"),
    ("growth", "FILE"),
    ("phases", "FILE"),
    ("times", "FILE"),
    ("fragmentation", "FILE"),
    ("oom", "FILE"),
    ("compare", "FILE", "FILE"),
    ("report", "FILE", "-f", "-o", "out.html"),
    ("plot", "FILE", "-f", "-o", "out.svg"),
    ("export", "FILE", "--to", "memory_viz", "-f", "-o", "out.pickle"),
    ("export", "FILE", "--to", "perfetto", "-f", "-o", "out.pftrace"),
    ("export", "FILE", "--to", "csv", "-f", "-o", "out.csv"),
)
IMPORTING = (("import", "FILE", "-f", "-o", "out.gmt"),)
RECORD: dict[str, Any] = {
    "pid": 1,
    "host": "h",
    "rank": 0,
    "world_size": 1,
    "script": "train.py",
    "argv": ["train.py", "-x"],
    "torch": {"version": "2.11.0", "cuda": "13.0"},
    "devices": [{"index": 0, "name": "H200", "memory_bytes": 1 << 37}],
    "allocator": {"settings": "expandable_segments:True"},
    "clock": {"source": "tsc", "wall_ns": 1, "monotonic_ns": 1, "ticks_per_s": 1e9},
    "simulated": {"gpu": "Simulated H200", "approximations": [{"name": "f", "calls": 1}]},
    "stalls": {"count": 1, "total_ns": 5},
    "device_sample_interval_ms": 50,
    "training": {"model": "Net", "parameters": 5, "optimizer": "AdamW", "batch": [4, 8]},
}
FOOTER: dict[str, Any] = {
    "reason": "closed",
    "error": None,
    "totals": {"events": 120, "dropped": 0, "drain_cpu_ns": 5, "ring_high_water": 3},
}
BLOCK = {"size": 512, "requested_size": 500, "address": 1 << 40, "state": "active_allocated"}
ENTRY = {
    "action": "alloc",
    "addr": 1 << 40,
    "size": 512,
    "stream": 0,
    "time_us": 5,
    "frames": [{"filename": "train.py", "line": 3, "name": "step"}],
}
SNAPSHOT: dict[str, Any] = {
    "segments": [
        {
            "device": 0,
            "address": 1 << 40,
            "total_size": 2 << 20,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "blocks": [BLOCK],
        }
    ],
    "device_traces": [[ENTRY, {**ENTRY, "action": "free_requested"}]],
    "allocator_settings": {"expandable_segments": True},
    "external_annotations": [{"name": "## forward ##", "stage": "START", "device": 0}],
}
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1 << 31,
    (1 << 63) - 1,
    1 << 64,
    -(1 << 63),
    10**400,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "text",
    "\x1b]0;title\x07\x1b[31m",
    "</script><script>alert(1)</script>",
    "$\\frac{x$",
    "[bold]x[/nothing]",
    "%s{0}\n\r\t\0",
    "\ud800",
    "\u202egnp",
    "x" * 3000,
    [],
    {},
    [1],
    [[1, 2, 3]],
    {"name": {}},
    {"a": [None]},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value inside."""
    yield path
    inner = value.items() if isinstance(value, dict) else ()
    if isinstance(value, (list, tuple)):
        inner = enumerate(value)
    for key, part in inner:
        yield from places(part, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return ``value`` with the one at ``path`` replaced."""
    if not path:
        return new
    inner = dict(value) if isinstance(value, dict) else list(value)
    inner[path[0]] = replaced(inner[path[0]], path[1:], new)
    return inner


def harmed(value: Any, draw: random.Random, times: int) -> Any:
    """Return ``value`` with some of what is in it replaced by something else."""
    value = copy.deepcopy(value)
    for _ in range(times):
        ways = [path for path in places(value) if path]
        if ways:
            value = replaced(value, draw.choice(ways), draw.choice(HOSTILE))
    return value


def edge(dtype: np.dtype[Any], draw: random.Random) -> int:
    """Return a number that the dtype holds, often one at its edge."""
    limits = np.iinfo(dtype)
    around = draw.choice((0, 0, 1 << draw.randrange(64), limits.max, limits.min))
    return min(max(around + draw.randrange(-2, 3), limits.min), limits.max)


def rows_of(table: str) -> list[list[Any]]:
    """Return a table of names as a file has it."""
    rows = getattr(NAMES, table).items()
    if table == "threads":
        return [[i, thread.os_tid, thread.name] for i, thread in rows]
    return [[i, *row] if isinstance(row, tuple) else [i, row] for i, row in rows]


def write_trace(path: Path, draw: random.Random) -> None:
    """Write a file with harm in its events, its run record, its names, or its bytes."""
    columns = training(draw.choice((10, 40, 120)))
    where = draw.choice(("events", "record", "names", "footer", "bytes", "all"))
    if where in ("events", "all"):
        for _ in range(draw.choice((1, 3, 30))):
            name = draw.choice(list(COLUMNS))
            row = draw.randrange(len(columns["kind"]))
            columns[name][row] = draw.randrange(24) if name == "kind" else edge(COLUMNS[name], draw)
    tables = {entry.name: rows_of(entry.name) for entry in fields(NAMES)}
    harm = draw.choice((1, 2, 5))
    record = harmed(RECORD, draw, harm) if where in ("record", "all") else RECORD
    tables = harmed(tables, draw, harm) if where in ("names", "all") else tables
    footer = harmed(FOOTER, draw, harm) if where in ("footer", "all") else FOOTER
    writer = _core.FileWriter(str(path), 1, True, draw.choice((1, 2)), 60, 0)
    writer.write_metadata(json.dumps(record).encode())
    writer.write_names(json.dumps(tables).encode())
    writer.append(columns)
    if draw.random() < 0.8:
        writer.close(json.dumps(footer).encode())
    else:
        writer.flush()
    if where == "bytes":
        data = bytearray(path.read_bytes())
        for _ in range(harm):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data[: draw.choice((len(data), draw.randrange(len(data))))])


def write_snapshot(path: Path, draw: random.Random) -> None:
    """Write a snapshot with other values in it, or damaged."""
    data = bytearray(pickle.dumps(harmed(SNAPSHOT, draw, draw.choice((1, 2, 5))), 4))
    if draw.random() < 0.3:
        data[draw.randrange(len(data))] = draw.randrange(256)
    path.write_bytes(data)


KINDS: dict[str, tuple[Callable[[Path, random.Random], None], tuple[tuple[str, ...], ...]]] = {
    "trace.gmt": (write_trace, READING),
    "snapshot.pickle": (write_snapshot, IMPORTING),
}


def what_is_wrong(path: Path, command: tuple[str, ...]) -> str | None:
    """Run one command on ``path``; return what a user should not have seen."""
    arguments = [str(path) if part == "FILE" else part for part in command]
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        try:
            run_command(arguments)
        except BaseException as error:  # argparse's SystemExit, too
            return f"raised {type(error).__name__}: {error}"
    told = err.getvalue()
    if "internal error" in told:
        return told.strip()
    if warned:
        return f"warned: {warned[0].message} ({warned[0].filename}:{warned[0].lineno})"
    control = {c for c in out.getvalue() + told if (c < " " and c not in "\n\t") or c == "\x7f"}
    return f"printed control characters: {control!r}" if control else None


def try_number(number: int, folder: Path, commands: int) -> list[tuple[str, Path, str]]:
    """Make the file of this number, run some of the commands on it; return what was found."""
    draw = random.Random(number)
    name = draw.choices(list(KINDS), (4, 1))[0]
    write, all_commands = KINDS[name]
    path = folder / name
    write(path, draw)
    found = []
    for command in draw.sample(all_commands, min(commands, len(all_commands))):
        if wrong := what_is_wrong(path, command):
            found.append((" ".join(command), path, wrong))
    return found


def main() -> int:
    """Try files until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1, help="the number of the first file")
    parser.add_argument("--keep", type=Path, help="where files that were found go")
    options = parser.parse_args()
    keep = options.keep.absolute() if options.keep else None
    end = time.monotonic() + options.seconds
    number = options.seed
    findings = 0
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        while time.monotonic() < end:
            for command, path, wrong in try_number(number, Path(name), commands=4):
                findings += 1
                print(f"{number}: {command}: {wrong}", flush=True)
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{number}-{path.name}").write_bytes(path.read_bytes())
            number += 1
        os.chdir("/")
    print(f"{number - options.seed} files, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
