"""For programs that run with the hook: torch's own snapshot of its segments, at marked places.

Each goes to stdout as JSON at the end; the trace has a step mark at the same place.
"""

from __future__ import annotations

import json
from typing import Any

import hook_child

_STATES = {
    "inactive": "free",
    "active_allocated": "live",
    "active_pending_free": "pending",
}


class Snapshots:
    """Takes them, and prints them at the end."""

    def __init__(self) -> None:
        self._taken: list[list[dict[str, Any]]] = []

    def take(self) -> None:
        """What torch says of its segments, and a step mark."""
        import torch

        self._taken.append([_segment(segment) for segment in torch.cuda.memory_snapshot()])
        if hook_child.TRACE is not None:
            from gpumemtrace import _core

            _core.push_step(len(self._taken))

    def finish(self) -> None:
        """End the session and print what was taken."""
        hook_child.stop()
        print(json.dumps(self._taken))


def _segment(segment: dict[str, Any]) -> dict[str, Any]:
    return {
        "device": segment["device"],
        "base": segment["address"],
        "size": segment["total_size"],
        "stream": segment["stream"],
        "pool": list(segment["segment_pool_id"]),
        "is_small": segment["segment_type"] == "small",
        "blocks": [
            [
                _STATES[block["state"]],
                block["size"],
                0 if block["state"] == "inactive" else block["requested_size"],
            ]
            for block in segment["blocks"]
        ],
    }
