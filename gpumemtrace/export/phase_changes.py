"""From the phase that holds to what was closed and opened."""

from __future__ import annotations

__all__ = ["unchanged"]


def unchanged(before: tuple[str, ...], after: tuple[str, ...], *, is_entered: bool) -> int:
    """Return how many of the open phases, outermost first, stay open from one mark to the next.

    A mark says which phases are open after it, and whether the innermost was opened there: if it
    was open before, it was left and entered anew.
    """
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    return same - 1 if is_entered and after and same == len(after) else same
