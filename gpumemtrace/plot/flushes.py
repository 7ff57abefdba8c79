"""How retries and emptied caches look in a picture, and what its legend says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from gpumemtrace.analysis.driver_time import Flush
from gpumemtrace.units import format_duration

__all__ = ["FLUSH_STYLE", "describe_flushes"]

FLUSH_STYLE: dict[str, Any] = {"color": "#CC6677", "alpha": 0.7, "linewidth": 1.2}
_NAMES = {"retry": "retry", "empty_cache": "cache emptied"}


def describe_flushes(flushes: Collection[Flush]) -> str:
    """One flush as it is; of several, how many of which kind, how long, and where most were."""
    ordered = sorted(flushes, key=lambda flush: flush.time_ns)
    took = format_duration(sum(flush.duration_ns for flush in ordered) / 1e9)
    if len(ordered) == 1:
        (flush,) = ordered
        where = ", ".join(filter(None, [flush.phase, f"step {flush.step}"]))
        return f"{_NAMES[flush.kind]}: {took} in {where}"
    kinds = Counter(_NAMES[flush.kind] for flush in ordered)
    phase, _ = Counter(flush.phase for flush in ordered).most_common(1)[0]
    counts = ", ".join(f"{kind} {count:,} x" for kind, count in kinds.items())
    return f"{counts}: {took}{f', mostly in {phase}' if phase else ''}"
