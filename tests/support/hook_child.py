"""For programs that run in a child process, with the hook or (the same program) without.

A test gives the path of the trace in ``HOOK_TRACE``; without it nothing is installed. So the two
runs of a comparison differ in this one variable.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

TRACE = os.environ.get("HOOK_TRACE")
LINES = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes")


def start(**options: Any) -> None:
    """Install the hook and begin a session."""
    if TRACE is None:
        return
    from gpumemtrace import _core
    from gpumemtrace.capture import allocator

    allocator.ensure_installed()
    _core.session_start(TRACE, metadata_json="{}", **{"ring_bytes": 64 << 20, **options})


def stop() -> dict[str, Any]:
    """End the session; nothing may have been lost."""
    if TRACE is None:
        return {}
    from gpumemtrace import _core

    stats: dict[str, Any] = _core.session_stop("{}")
    assert stats["dropped"] == 0 and stats["error"] is None, stats
    return stats


class Churn:
    """Blocks on two devices, split and not, kept for a while: some wait for another stream."""

    def __init__(self, seed: int, *, shared: float, emptied: float) -> None:
        """How likely a block is used by another stream too, and the cache is emptied after it."""
        import torch

        self.chosen = random.Random(seed)
        self.shared, self.emptied = shared, emptied
        self.side = [torch.cuda.Stream(device) for device in range(2)]
        self.kept: list[Any] = []

    def go(self, blocks: int) -> None:
        """Allocate so many blocks and give others back."""
        import torch

        chosen, kept = self.chosen, self.kept
        for _ in range(blocks):
            device = chosen.randrange(2)
            size = chosen.choice([100, 3000, 70_000, 1_500_000, 3_300_000, 12_000_000, 25_000_000])
            kept.append(torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}"))
            if chosen.random() < self.shared:
                kept[-1].record_stream(self.side[device])
            if chosen.random() < self.emptied:
                torch.cuda.empty_cache()
            while len(kept) > 12 and chosen.random() < 0.7:
                kept.pop(chosen.randrange(len(kept)))


class Steps:
    """Torch's own counters at the end of each step, for `hook_lines` to compare with."""

    def __init__(self) -> None:
        self.counters: list[dict[str, dict[str, int]]] = []

    def end(self) -> None:
        """Take the counters of each device in use; the trace gets a step mark at the same place."""
        import torch

        now = {}
        for device in range(torch.cuda.device_count()):
            stats = torch.cuda.memory_stats(device)
            if stats.get("reserved_bytes.all.peak"):
                now[str(device)] = {
                    f"{line}.{what}": stats[f"{line}.all.{what}"]
                    for line in LINES
                    for what in ("current", "peak")
                }
        self.counters.append(now)
        if TRACE is not None:
            from gpumemtrace import _core

            _core.push_step(len(self.counters))

    def finish(self) -> None:
        """End the session and print what `hook_lines.check_steps` reads."""
        stop()
        print(json.dumps(self.counters))
