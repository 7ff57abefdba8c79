"""Figures: each shows a result and computes nothing."""

__all__ = ["KINDS"]

# One module per figure; see kinds.py. Here, since naming them must not load matplotlib.
KINDS: tuple[str, ...] = (
    "timeline",
    "phases",
    "categories",
    "peak",
    "modules",
    "growth",
    "fragmentation",
    "sizes",
    "lifetimes",
    "compare",
)
