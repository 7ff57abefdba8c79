"""JSON-like values with arrays in them, as text that a page can hold.

    text     = base64 of deflate (zlib) of: uint32 length of the JSON (little-endian), JSON, stream
    an array = {"$": [offset in the stream, count, scale]} in the JSON
    stream   = per array: differences between its values / scale, zigzag, LEB128

Neighbours in a line are near each other, so most values take a byte or two before deflate; the page
undoes it in ``static/core.js`` with the browser's own DecompressionStream. Base64 has no character
that means anything in HTML: text of the user's can't leave its place.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["pack", "varints"]

_BITS = 7


def pack(value: Any) -> str:
    """Return ``value`` as text: mappings, sequences, texts, figures, and 1-d integer arrays.

    Integers have to stay below 2**53, what a page can count to. Raises `TypeError` for anything
    else that JSON does not know.
    """
    stream = bytearray()
    head = json.dumps(_without_arrays(value, stream), separators=(",", ":"), allow_nan=False)
    encoded = head.encode()
    raw = len(encoded).to_bytes(4, "little") + encoded + bytes(stream)
    return base64.b64encode(zlib.compress(raw, 9)).decode("ascii")


def varints(values: npt.NDArray[np.int64]) -> bytes:
    """Return the differences between neighbours (the first: from 0), zigzag, as LEB128."""
    step = np.diff(values, prepend=0)
    zigzag = ((step << 1) ^ (step >> 63)).view(np.uint64)
    groups = np.maximum(1, (np.frexp(zigzag.astype(np.float64))[1] + _BITS - 1) // _BITS)
    start = np.cumsum(groups) - groups
    out = np.zeros(int(groups.sum()), np.uint8)
    for group in range(int(groups.max(initial=0))):
        has = groups > group
        low = (zigzag[has] >> np.uint64(_BITS * group)).astype(np.uint8) & 0x7F
        out[start[has] + group] = low | np.where(groups[has] > group + 1, 0x80, 0).astype(np.uint8)
    return out.tobytes()


def _without_arrays(value: Any, stream: bytearray) -> Any:
    if isinstance(value, np.ndarray):
        if value.ndim != 1 or value.dtype.kind not in "iu":
            kind = f"{value.dtype}{value.shape}"
            raise TypeError(f"only 1-d integer arrays can be packed, not {kind}")
        values = value.astype(np.int64)
        scale = max(int(np.gcd.reduce(values)), 1) if len(values) else 1
        place = len(stream)
        stream += varints(values // scale)
        return {"$": [place, len(values), scale]}
    if isinstance(value, Mapping):
        return {str(key): _without_arrays(entry, stream) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_arrays(entry, stream) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    return value
