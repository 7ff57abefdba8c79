"""Write what fuzzing begins with: small inputs of each target, into ``corpus/`` beside this file.

    python tests/fuzz/make_seeds.py

They are kept in the repository; run it again when a format gains something to begin with.
"""

from __future__ import annotations

import pickle
import random
import struct
from pathlib import Path

import numpy as np

from gpumemtrace.schema import COLUMNS, Kind
from gpumemtrace.trace_file import CODECS, Columns, FileWriter, Names, ThreadName, TraceFile

CORPUS = Path(__file__).parent / "corpus"

NAMES = Names(
    phases={1: (0, "forward"), 2: (1, "Schicht ☃")},
    strings={1: "a mark"},
    threads={1: ThreadName(os_tid=7, name="main")},
    modules={1: (0, "Net"), 2: (1, "layer.0")},
    codes={1: ("train.py", "step", 3)},
    frames={1: (0, 1, 5), 2: (1, 1, 6)},
    sites={1: (2, 2, 1)},
)


def training(count: int) -> Columns:
    """Steps of ten events, every kind of event among them."""
    rows = np.arange(count)
    columns = {name: np.zeros(count, dtype) for name, dtype in COLUMNS.items()}
    columns["time_ns"][:] = 1000 * rows + rows % 7
    columns["kind"][:] = np.where(rows % 10 < 8, 1 + rows % 2, 3 + rows // 10 % (len(Kind) - 2))
    columns["address"][:] = (1 << 40) + (rows // 2 % 5 << 21)
    columns["size_bytes"][:] = np.where(rows % 2 == 0, 512 + (rows % 10 << 18), 0)
    columns["extra"][:] = np.where(rows % 10 == 4, 1 << 22, 0)
    columns["thread"][:] = 1 + (rows % 10 > 5)
    columns["site"][:] = rows % 2
    return columns


def write_trace(path: Path, codec: int, *, close: bool) -> None:
    """Write a trace of some chunks."""
    writer = FileWriter(path, overwrite=True, codec=codec, events_per_keyframe=60)
    writer.write_metadata({"pid": 1, "devices": [{"index": 0, "name": "H200"}], "rank": 0})
    writer.write_names(NAMES)
    for _ in range(3):
        writer.append(training(40))
        writer.flush()
    if close:
        writer.close({"reason": "end", "totals": {"events": 120}})


def payloads_of(path: Path) -> list[tuple[int, bytes]]:
    """Return the number of events and the payload of each chunk of events."""
    data = path.read_bytes()
    return [
        (int(chunk["count"]), data[chunk["offset"] + 96 : chunk["offset"] + chunk["stored_bytes"]])
        for chunk in TraceFile(path).chunks
    ]


def left_in_memory() -> bytes:
    """Return what a killed process leaves in shared memory, the parts that fuzz_segment.cc fills.

    Two staged events, three in the ring with a loss before the second, a phase's name.
    """

    def event(number: int) -> bytes:
        return struct.pack("<5Q3IhH", 40_000 + number, 512 * number, 512, 0, 0, 1, 0, 0, 0, 1)

    header = struct.pack("<8s2I6Q64x", b"", 0, 0, 0, 0, 0, 10, 0, 0)
    loss = (3, 1536, 1, 41_000, 42_000)
    files = (1, 2, 25, 0, 0, 0, 0, 0)
    progress = struct.pack("<11QqQqdQ5Q", *files, 0, 2, 8, 40_001, 0, 0, 1.0, 9, *loss)
    log = struct.pack("<Q", 1) + bytes(len(progress)) + progress
    ring = b"".join(event(2 + i) + struct.pack("<Q", 9 + i) for i in range(3)).ljust(8 * 64, b"\0")
    stage = (event(0) + event(1)).ljust(4 * 56, b"\0")
    name = b"forward"
    names = struct.pack("<2I", 12 + len(name), 0) + struct.pack("<2IHBB", 1, 0, len(name), 1, 0)
    return header + log + ring + stage + names + name


def main() -> None:
    """Write all of them."""
    folders = {name: CORPUS / name for name in ("reader", "codec", "events", "pickle", "segment")}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    for codec in CODECS:
        closed = folders["reader"] / f"codec{codec}-closed"
        write_trace(closed, codec, close=True)
        write_trace(folders["reader"] / f"codec{codec}-growing", codec, close=False)
        (first, a), (second, b), *_ = payloads_of(closed)
        head = struct.pack("<IHHH", 0, first - 1, second - 1, len(a))
        (folders["codec"] / f"codec{codec}").write_bytes(head + a + b)
    (folders["segment"] / "killed").write_bytes(left_in_memory())
    draw = random.Random(1)
    for length in (16, 64):
        events = bytes(draw.randrange(256) for _ in range(8 * length))
        (folders["events"] / f"{length}-events").write_bytes(events)
    entry = {"action": "alloc", "addr": 1 << 40, "size": 512, "stream": 0, "frames": [], "t": 1.5}
    block = {"size": 512, "requested_size": 500, "address": 1 << 40, "state": "active_allocated"}
    segment = {"address": 1 << 40, "total_size": 2 << 20, "stream": 0, "blocks": [block, None, ()]}
    snapshot = {"segments": [segment], "device_traces": [[entry, entry]], "b": b"x", "deep": True}
    for protocol in (2, 4):
        (folders["pickle"] / f"protocol{protocol}").write_bytes(pickle.dumps(snapshot, protocol))


if __name__ == "__main__":
    main()
