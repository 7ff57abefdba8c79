"""Just enough of the protobuf wire format to write messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PADDED_BYTES", "number", "padded", "text", "varint"]

PADDED_BYTES = 10


def varint(value: int) -> bytes:
    """Return an unsigned number: 7 bits a byte, lowest first. Negative ones as 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    """Return a field of a varint type."""
    return varint(field << 3) + varint(value)


def text(field: int, value: str | bytes) -> bytes:
    """Return a field of text, bytes or a message."""
    content = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(content)) + content


def padded(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return int64 values as varints of `PADDED_BYTES` each: (rows, 10), with needless zeros.

    Any reader takes them, and rows of one length can be written at once.
    """
    shifts = np.arange(PADDED_BYTES, dtype=np.uint64) * np.uint64(7)
    bits = values.astype(np.int64).view(np.uint64)[:, None] >> shifts
    groups: npt.NDArray[np.uint8] = (bits & np.uint64(0x7F)).astype(np.uint8)
    groups[:, :-1] |= 0x80
    return groups
