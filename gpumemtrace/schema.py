"""The vocabulary of a trace: what an event is, and what its fields mean for each kind.

The mirror of ``csrc/trace/event.h``, which says what each field holds for each kind;
``tests/test_schema.py`` keeps the two equal.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

__all__ = [
    "COLUMNS",
    "Category",
    "DeviceUsedFlags",
    "Kind",
    "PhaseFlags",
    "SegmentFlags",
    "StackState",
    "StatsCause",
    "StepFlags",
]


class Kind(enum.IntEnum):
    """What happened. A file may hold numbers that are not here: of a newer version."""

    ALLOC = 1
    FREE = 2
    STATS = 3
    DEVICE_USED = 4
    SEGMENT_ALLOC = 5
    SEGMENT_FREE = 6
    SEGMENT_MAP = 7
    SEGMENT_UNMAP = 8
    ALLOC_FAILED = 9
    RETRY = 10
    EMPTY_CACHE = 11
    POOL_BEGIN = 12
    POOL_END = 13
    PHASE = 14
    STEP = 15
    MARK = 16
    TAG = 17
    GAP = 18
    RECORD_STREAM = 19
    SEGMENT_POOL = 20
    HOST_USED = 21
    AGED = 22


class StatsCause(enum.IntEnum):
    """Why the allocator's counters were read (``flags`` of a `Kind.STATS` event)."""

    MISS = 1
    RELEASE = 2
    RESYNC = 3
    BASELINE = 4
    AGED = 5
    AGED_UNSURE = 6


class SegmentFlags(enum.IntFlag):
    """Which requests a segment serves (``flags`` of a `Kind.SEGMENT_ALLOC` or ``_MAP`` event)."""

    SMALL = 1
    LARGE = 2


class PhaseFlags(enum.IntFlag):
    """What a `Kind.PHASE` event was (its ``flags``)."""

    ENTERED = 1
    PROCESS_WIDE = 2


class DeviceUsedFlags(enum.IntFlag):
    """What a `Kind.DEVICE_USED` event tells (its ``flags``)."""

    OTHERS_KNOWN = 1


class StepFlags(enum.IntFlag):
    """What a `Kind.STEP` event was (its ``flags``)."""

    SET = 1
    INSIDE = 2


class StackState(enum.IntEnum):
    """Whose call site a site names, or why it names none."""

    OFF = 0
    TAKEN = 1
    FORWARD = 2
    TOO_SMALL = 3
    NO_PYTHON = 4
    TOO_MANY = 5


class Category(enum.IntEnum):
    """What a tensor is for (``stream`` of a `Kind.TAG` event)."""

    UNKNOWN = 0
    PARAMETER = 1
    BUFFER = 2
    GRADIENT = 3
    OPTIMIZER_STATE = 4
    ACTIVATION = 5
    INPUT = 6
    TEMPORARY = 7


COLUMNS: dict[str, np.dtype[Any]] = {
    "time_ns": np.dtype(np.int64),  # since the trace began
    "kind": np.dtype(np.uint16),
    "address": np.dtype(np.uint64),
    "size_bytes": np.dtype(np.uint64),
    "stream": np.dtype(np.uint64),
    "extra": np.dtype(np.uint64),
    "thread": np.dtype(np.uint32),
    "site": np.dtype(np.uint32),
    "flags": np.dtype(np.uint32),
    "device": np.dtype(np.int16),  # -1 = none
}
"""Columns of decoded events and their dtypes; all arrays have one element per event."""
