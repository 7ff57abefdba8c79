"""What the gaps between the lines are called, and which line each reaches up to."""

from __future__ import annotations

__all__ = ["GAP_LABELS", "GAP_MEANINGS", "LINE_ABOVE"]

GAP_LABELS = {
    "rounding": "rounding",
    "pending": "pending free",
    "cached": "cached",
    "outside": "outside PyTorch",
    "others": "other processes",
    "unattributed": "of no process",
    "device_free": "free on the device",
}
GAP_MEANINGS = {
    "rounding": "what blocks are larger than their requests",
    "pending": "freed, but another stream is not done with it",
    "cached": "the allocator's cache",
    "outside": "CUDA context and modules, NCCL, libraries",
    "others": "what the driver says that they use",
    "unattributed": "in use, and charged to no process",
    "device_free": "what is left of the card",
}
# The last gap below a line -> that line; `Gaps` has an attribute for each of both.
LINE_ABOVE = {
    "rounding": "allocated",
    "pending": "active",
    "cached": "reserved",
    "unattributed": "device_used",
    "device_free": "capacity",
}
