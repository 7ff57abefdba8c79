"""The gaps between the lines in the plainest Python, and random records to find them in."""

from __future__ import annotations

import random

from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.lines import ALLOCATOR_LINES, LineStream
from gpumemtrace.schema import DeviceUsedFlags, Kind
from gpumemtrace.trace import Trace

MS = 1_000_000
LAG_NS = 20 * MS
CAPACITY = 1000 * MIB
DRIVER_CALLS = (Kind.SEGMENT_ALLOC, Kind.SEGMENT_MAP, Kind.RETRY)


def sample(builder: TraceBuilder, used: int, own: int = 0, others: int = -1, **columns: int):
    flags = DeviceUsedFlags.OTHERS_KNOWN if others >= 0 else 0
    columns = {"address": own, "stream": CAPACITY, "extra": max(others, 0)} | columns
    return builder.add(Kind.DEVICE_USED, size_bytes=used, flags=flags, **columns)


def rows_of(trace: Trace) -> list[dict]:
    """Every record with the lines of its device after it."""
    rows = []
    for batch, lines in LineStream(trace):
        for i in range(len(batch)):
            row = {name: int(column[i]) for name, column in batch.raw.items()}
            row |= {name: int(lines.values[name][i]) for name in ALLOCATOR_LINES}
            row |= {"device": int(lines.device[i]), "uncertain": bool(lines.uncertain[i])}
            rows.append(row | {"path": int(batch.phase_path[i])})
    return rows


def slow_settled(rows: list[dict], device: int) -> list[dict]:
    """The samples that tell what lies outside PyTorch."""
    found = []
    for i, row in enumerate(rows):
        if row["kind"] != Kind.DEVICE_USED or row["device"] != device or row["uncertain"]:
            continue
        until, reserved = row["time_ns"] + LAG_NS, row["reserved"]
        good = True
        for later in rows[i + 1 :]:
            is_flush = later["kind"] == Kind.EMPTY_CACHE
            if later["device"] != device and not is_flush:
                continue
            began = later["time_ns"] - later["extra"]
            if (later["kind"] in DRIVER_CALLS or is_flush) and row["time_ns"] >= began:
                good = False
            elif later["time_ns"] > until and not is_flush:
                break
            elif not is_flush:
                good &= later["kind"] != Kind.DEVICE_USED and later["reserved"] == reserved
            if not good:
                break
        if good:
            found.append(row)
    return found


def slow_breaks(rows: list[dict], device: int) -> dict[str, int]:
    """How many records show each pair of lines in the wrong order."""
    counts: dict[str, int] = {}
    used = own = -1
    capacity = 0
    knows_reserved = False
    for row in rows:
        if row["device"] != device:
            continue
        if row["kind"] == Kind.DEVICE_USED:
            used, own, capacity = row["size_bytes"], row["address"] or -1, row["stream"]
        knows_reserved |= row["kind"] == Kind.STATS
        broken = {
            "requested>allocated": row["requested"] > row["allocated"],
            "allocated>active": row["allocated"] > row["active"],
            "active>reserved": knows_reserved and row["active"] > row["reserved"],
            "reserved>own_process": own >= 0 and row["reserved"] > own,
            "reserved>device_used": used >= 0 and row["reserved"] > used,
            "device_used>capacity": row["kind"] == Kind.DEVICE_USED and 0 < capacity < used,
        }
        for pair, is_broken in broken.items():
            if is_broken:
                counts[pair] = counts.get(pair, 0) + 1
    return counts


def slow_moments(rows: list[dict], device: int) -> list[dict]:
    """Each moment that counts: when a call of the allocator is done."""
    mine = [row for row in rows if row["device"] == device]
    moments = []
    missed = None  # an alloc that waits for its segment
    for row in mine:
        is_event = row["kind"] in (Kind.ALLOC, Kind.FREE)
        if missed is not None and is_event:
            moments.append(missed)
            missed = None
        if row["uncertain"]:
            missed = None
        elif row["kind"] == Kind.ALLOC and row["active"] > row["reserved"]:
            missed = row
        elif missed is None or row["kind"] == Kind.STATS:
            moments.append(row)
            missed = None
    return moments if missed is None else [*moments, missed]


def random_trace(seed: int) -> Trace:
    """Random records of two devices: well-formed misses, samples, gaps, contradictions."""
    rng = random.Random(seed)
    builder = TraceBuilder()
    reserved = [0, 0]
    for _ in range(rng.randint(0, 60)):
        what, device = rng.randint(0, 11), rng.choice([0, 0, 0, 1])
        after, thread = rng.choice([1000, 5 * MS, 30 * MS]), rng.choice([1, 1, 1, 2])
        where = {"device": device, "thread": thread, "after_ns": after}
        address = 512 * rng.randint(1, 6)
        if what <= 3:
            builder.alloc(address, rng.choice([0, 100, 512, 3000, 5 * MIB]), **where)
        elif what <= 5:
            builder.free(address, **where)
        elif what == 6:
            reserved[device] += 2 * MIB
            lines = sorted(rng.randint(0, 4 * MIB) for _ in range(3))
            builder.stats(*lines, reserved[device], **where)
        elif what == 7:
            builder.stats(*(rng.randint(0, 4 * MIB) for _ in range(4)), **where)
        elif what == 8:
            used, own = rng.choice([MIB, 10 * MIB, 2 * CAPACITY]), rng.choice([0, MIB, 9 * MIB])
            sample(builder, used, own, rng.choice([-1, MIB]), **where)
        elif what == 9:
            kind = rng.choice([Kind.SEGMENT_ALLOC, Kind.RETRY])
            builder.add(kind, extra=rng.choice([1000, 40 * MS]), **where)
        elif what == 10:
            builder.add(Kind.EMPTY_CACHE, extra=rng.choice([0, 40 * MS]), device=-1)
        elif rng.random() < 0.5:
            builder.add(Kind.GAP, address=1, device=-1)
        else:
            builder.phase(rng.choice(["forward", "backward", ""]))
    return builder.trace(batch_records=rng.choice([3, 1 << 18]))
