"""The groups of a peak as rows of a table: there may be as many as lines in a program."""

from __future__ import annotations

from typing import Any

from gpumemtrace.analysis.peak_live_set import PeakLiveSet

__all__ = ["group_rows"]

_MOST_ROWS = 2000


def group_rows(peak: PeakLiveSet, by: str) -> list[dict[str, Any]]:
    """Return the largest groups, and those left out as one more row."""
    groups = peak.group_by(by)
    rows = [
        {"name": group.name, "bytes": group.size_bytes, "blocks": group.blocks}
        for group in groups[:_MOST_ROWS]
    ]
    rest = groups[_MOST_ROWS:]
    if rest:
        rows.append(
            {
                "name": f"{len(rest):,} smaller",
                "bytes": sum(group.size_bytes for group in rest),
                "blocks": sum(group.blocks or 0 for group in rest),
            }
        )
    return rows
