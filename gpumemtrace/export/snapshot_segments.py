"""The allocator's segments at one instant, as a PyTorch memory snapshot has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace import _core
from gpumemtrace.export.site_frames import SiteFrames
from gpumemtrace.export.snapshot_entries import EntryStream
from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind

__all__ = ["feed_segments", "segments_of"]

_FREE, _LIVE = 0, 1
_STATES = ("inactive", "active_allocated", "active_awaiting_free")


def feed_segments(replay: _core.SegmentReplay, batch: Batch) -> dict[str, npt.NDArray[Any]]:
    """Feed a batch; return the segments that a flush of the cache gave back without being told of.

    Columns: ``row`` of the flush, ``address, size, stream, device``. A recorder can't tell
    of them while PyTorch's own history is on, nor could those before gpumemtrace 0.2.
    """
    raw, kind = batch.raw, batch.raw["kind"]
    found: list[tuple[int, int, int, int, int]] = []
    stats = batch.rows_of(Kind.STATS)
    flushes = np.sort([*batch.rows_of(Kind.EMPTY_CACHE), *batch.rows_of(Kind.RETRY)]).astype(int)
    done = 0
    for flush in flushes.tolist():
        own = int(raw["device"][flush])
        seen: set[int] = set()
        for row in stats[stats > flush].tolist():
            device = int(raw["device"][row])
            if device in seen or own not in (-1, device) or row < done:
                continue
            seen.add(device)
            replay.feed(batch.window(done, row, first_event=0, is_lead_in=True).raw)
            before = _whole_segments(replay, device)
            replay.feed(batch.window(row, row + 1, first_event=0, is_lead_in=True).raw)
            done = row + 1
            for place in before.keys() - _whole_segments(replay, device).keys():
                found.append((flush, *place, before[place], device))
            if own == device:
                break
    replay.feed(batch.window(done, len(kind), first_event=0, is_lead_in=True).raw)
    table = np.array(sorted(found), np.int64).reshape(-1, 5)
    names = ("row", "address", "size", "stream", "device")
    return {name: table[:, i] for i, name in enumerate(names)}


def _whole_segments(replay: _core.SegmentReplay, device: int) -> dict[tuple[int, int], int]:
    """Return (address, size) -> stream of the segments that are not expandable."""
    columns = replay.segments(device)
    rows = zip(
        *(columns[n].tolist() for n in ("base", "size_bytes", "stream", "page_bytes")), strict=True
    )
    return {(base, size): stream for base, size, stream, page in rows if page == 0}


def segments_of(
    replay: _core.SegmentReplay,
    device: int,
    stream: EntryStream,
    phase_names: Sequence[str],
    site_frames: SiteFrames,
) -> tuple[list[dict[str, Any]], bool]:
    """Return the segments of a device, and whether they are in doubt."""
    columns, blocks = replay.segments(device), replay.blocks(device)
    by_segment: list[list[dict[str, Any]]] = [[] for _ in columns["base"]]
    is_live = blocks["state"] == _LIVE
    place = np.full(len(is_live), -1)
    if is_live.any():
        place[is_live] = stream.blocks.rows_of(blocks["alloc"][is_live])
    names = [*phase_names, "(no phase)"]
    for i, (segment, address, size, requested, state) in enumerate(
        zip(
            *(
                blocks[name].tolist()
                for name in ("segment", "address", "size_bytes", "requested_bytes", "state")
            ),
            strict=True,
        )
    ):
        frames: list[dict[str, Any]] = []
        if place[i] >= 0:
            born = {n: int(stream.blocks.live[n][place[i]]) for n in ("step", "phase", "site")}
            frames = site_frames.of(born["site"])
            step = {"filename": "step", "line": born["step"], "name": names[born["phase"]]}
            frames.append(step)
        by_segment[segment].append(
            {
                "address": address,
                "size": size,
                "requested_size": size if state == _FREE else requested,
                "state": _STATES[state],
                "frames": frames,
            }
        )
    found = []
    for i, mine in enumerate(by_segment):
        live = [block for block in mine if block["state"] == _STATES[_LIVE]]
        active = [block for block in mine if block["state"] != _STATES[_FREE]]
        found.append(
            {
                "device": device,
                "address": int(columns["base"][i]),
                "total_size": int(columns["size_bytes"][i]),
                "allocated_size": sum(block["size"] for block in live),
                "active_size": sum(block["size"] for block in active),
                "requested_size": sum(block["requested_size"] for block in active),
                "stream": int(columns["stream"][i]),
                "segment_type": "small" if columns["is_small"][i] else "large",
                "segment_pool_id": (int(columns["pool_first"][i]), int(columns["pool_second"][i])),
                "is_expandable": bool(columns["page_bytes"][i]),
                "frames": [],
                "blocks": mine,
            }
        )
    return found, not replay.totals(device)["known"]
