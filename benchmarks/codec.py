"""Bytes per event in a trace file, and the time to write and to read one event.

    python benchmarks/codec.py recording.npz trace.gmt [another ...] [--tsc-ghz 2.4]

A recording holds the events of a real run as columns: ``kind`` (1 alloc, 2 free, 20 stats, 101 to
108 phases, 109 step), ``t`` (clock ticks), ``addr``, ``size``, ``stream``, ``thread``, ``dur``.

Each is written to a file in memory with chunks of 65,536 events (what `Trace.save` writes) and of
7,000 (what a drain that flushes every 100 ms writes at 70,000 events/s). "write" is columns to
events to bytes with checksums; "read" is bytes to columns. Times are processor time, the best of
several runs: compare them within one table, not across machines. `benchmarks/native/codec_cost.cc`
measures the codecs alone.

With ``--zstd`` (and the module ``zstandard``): zstd on the same columns, the bytes of each
split into planes (all lowest bytes, then all second ones, ...), per chunk, times as differences.
"""

import argparse
import functools
import importlib
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from gpumemtrace.schema import COLUMNS, Kind
from gpumemtrace.trace_file import CODECS, Columns, FileWriter, TraceFile

RESOLUTIONS_NS = (1, 100, 1000)
CHUNK_EVENTS = (65536, 7000)
ZSTD_LEVELS = (3, 19)


def load(path: Path, tsc_ghz: float) -> Columns:
    """The events of a recording, or of a trace file, in the columns of a trace."""
    if path.suffix == ".gmt":
        return TraceFile(path).read()
    recorded = np.load(path)
    kind = recorded["kind"].astype(np.int64)
    is_alloc, is_stats, is_step = kind == 1, kind == 20, kind == 109
    is_phase = (kind > 100) & (kind < 109)
    ticks = (recorded["t"] - recorded["t"][0]).astype(np.float64)
    columns = {name: np.zeros(len(kind), dtype) for name, dtype in COLUMNS.items()}
    columns["time_ns"][:] = ticks / tsc_ghz
    columns["kind"][:] = np.select(
        [is_stats, is_phase, is_step], [Kind.STATS, Kind.PHASE, Kind.STEP], kind
    )
    columns["address"][:] = np.where(is_stats, recorded["dur"], recorded["addr"])
    columns["size_bytes"][:] = np.where(is_phase, kind - 100, recorded["size"])
    columns["size_bytes"][kind == 2] = 0
    columns["stream"][:] = recorded["stream"]
    columns["extra"][is_stats] = recorded["addr"][is_stats]
    large = is_alloc & (recorded["size"] > 1 << 20)  # where the recorder takes allocated bytes
    columns["extra"][large] = allocated_bytes(recorded)[large]
    columns["thread"][:] = recorded["thread"]
    columns["flags"][is_phase] = 1
    return columns


def repeated(columns: Columns, count: int) -> Columns:
    """The same run several times in a row, until there are enough events."""
    times = -(-count // len(columns["kind"]))
    longer = {name: np.tile(values, times) for name, values in columns.items()}
    length_ns = columns["time_ns"][-1] + 1
    longer["time_ns"] += np.repeat(np.arange(times) * length_ns, len(columns["kind"]))
    return longer


def allocated_bytes(recorded: Mapping[str, np.ndarray]) -> np.ndarray:
    """Bytes allocated after each event, in blocks rounded up to 512."""
    total = 0
    live: dict[int, int] = {}
    after = []
    rows = zip(*(recorded[name].tolist() for name in ("kind", "addr", "size")), strict=True)
    for kind, address, size in rows:
        if kind == 1:
            live[address] = -(-size // 512) * 512
            total += live[address]
        elif kind == 2:
            total -= live.pop(address, 0)
        after.append(total)
    return np.array(after, np.uint64)


def best_seconds(function: Callable[[], object], runs: int) -> float:
    """The shortest of several runs."""
    times = []
    for _ in range(runs):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def write(path: Path, pieces: list[Columns], resolution_ns: int, codec: int) -> None:
    """One chunk of events per piece."""
    with FileWriter(path, time_resolution_ns=resolution_ns, overwrite=True, codec=codec) as writer:
        for piece in pieces:
            writer.append(piece)
            writer.flush()


def byte_planes(columns: Columns, resolution_ns: int) -> bytes:
    """The columns one after the other, byte by byte; of the times the differences."""
    units = columns["time_ns"] // resolution_ns
    arrays = [*(v for name, v in columns.items() if name != "time_ns"), np.diff(units, prepend=0)]
    planes = (array.view(np.uint8).reshape(len(array), -1).T.tobytes() for array in arrays)
    return b"".join(planes)


def zstd_bytes(pieces: list[Columns], resolution_ns: int, level: int) -> int | None:
    """Bytes that zstd makes of the same chunks; None without the module."""
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        return None
    compressor = zstandard.ZstdCompressor(level=level)
    return sum(len(compressor.compress(byte_planes(piece, resolution_ns))) for piece in pieces)


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes and nanoseconds per event of trace files.")
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--tsc-ghz", type=float, default=2.4, help="ticks of the recordings per ns")
    parser.add_argument("--events", type=int, default=500_000, help="repeat recordings up to here")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--zstd", action="store_true", help="also zstd on the same columns (slow)")
    options = parser.parse_args()

    table = Table(title="trace file")
    table.add_column("recording")
    for heading in ("chunk", "time unit", "codec", "bytes/event", "write ns", "read ns"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "t.gmt"
        for recording in options.recordings:
            columns = repeated(load(recording, options.tsc_ghz), options.events)
            count = len(columns["kind"])
            for chunk in CHUNK_EVENTS:
                pieces = [
                    {name: values[start : start + chunk] for name, values in columns.items()}
                    for start in range(0, count, chunk)
                ]
                for resolution_ns in RESOLUTIONS_NS:
                    case = (recording.stem, f"{chunk:,}", f"{resolution_ns:,} ns")
                    for codec in CODECS:
                        once = functools.partial(write, path, pieces, resolution_ns, codec)
                        write_s = best_seconds(once, options.runs)
                        file = TraceFile(path)
                        read_s = best_seconds(file.read, options.runs)
                        table.add_row(
                            *case,
                            str(codec),
                            f"{path.stat().st_size / count:.2f}",
                            f"{write_s / count * 1e9:.1f}",
                            f"{read_s / count * 1e9:.1f}",
                        )
                    for level in ZSTD_LEVELS if options.zstd else ():
                        size = zstd_bytes(pieces, resolution_ns, level)
                        if size is not None:
                            table.add_row(*case, f"zstd -{level}", f"{size / count:.2f}", "", "")
    Console().print(table)


if __name__ == "__main__":
    main()
