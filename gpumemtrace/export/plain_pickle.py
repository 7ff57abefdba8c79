"""Pickles written piece by piece, in the opcodes that PyTorch's viewer in the browser knows.

That viewer has an unpickler of its own: protocols 2 to 4, and of those only what Python writes for
dicts, lists, tuples, texts and numbers. Python's pickler needs all data at once; here rows of a
million entries are written as one numpy array, each entry at a fixed length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PROTOCOL", "RowTemplate", "encode", "memoized", "reference_list"]

PROTOCOL = b"\x80\x02"

# As Python's pickle module calls them.
_MARK, _SETITEMS, _APPENDS, _APPEND = b"(", b"u", b"e", b"a"
_EMPTY_DICT, _EMPTY_LIST, _NONE, _TRUE, _FALSE = b"}", b"]", b"N", b"\x88", b"\x89"
_BINUNICODE, _BININT, _LONG8, _TUPLE2 = b"X", b"J", b"\x8a\x08", b"\x86"
_BINGET, _LONG_BINGET, _BINPUT, _LONG_BINPUT = b"h", b"j", b"q", b"r"


def encode(value: Any) -> bytes:
    """Return the opcodes for plain data: dict, list, pair, str, int, bool, None."""
    if value is None:
        return _NONE
    if isinstance(value, bool):
        return _TRUE if value else _FALSE
    if isinstance(value, int):
        small = -(1 << 31) <= value < 1 << 31
        return _BININT + value.to_bytes(4, "little", signed=True) if small else _long(value)
    if isinstance(value, float):
        return encode(repr(value))
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        return _BINUNICODE + len(text).to_bytes(4, "little") + text
    if isinstance(value, Mapping):
        items = b"".join(encode(str(key)) + encode(item) for key, item in value.items())
        return _EMPTY_DICT + _MARK + items + _SETITEMS
    if isinstance(value, tuple) and len(value) == 2:
        return encode(value[0]) + encode(value[1]) + _TUPLE2
    return _EMPTY_LIST + _MARK + b"".join(map(encode, value)) + _APPENDS


def reference_list(memo_numbers: Sequence[int]) -> bytes:
    """Return the opcodes that add what is known by these numbers to the list that is open."""
    parts = (_LONG_BINGET + number.to_bytes(4, "little") for number in memo_numbers)
    return _MARK + b"".join(parts) + _APPENDS


def memoized(values: Sequence[Any], *, first: int = 0) -> bytes:
    """Return the opcodes for a list of values that are known by numbers from ``first`` on."""
    parts = []
    for i, value in enumerate(values, start=first):
        put = _BINPUT + bytes([i]) if i < 256 else _LONG_BINPUT + i.to_bytes(4, "little")
        parts.append(encode(value) + put)
    return _EMPTY_LIST + _MARK + b"".join(parts) + _APPENDS


class RowTemplate:
    """Dicts of one shape, encoded as rows of bytes; keys and texts by their memo numbers.

    A value is ``"long"`` (int64), ``"int"`` (int32), ``"text"`` (a memo number) or another shape,
    for a list with that one dict in it.
    """

    def __init__(self, shape: Mapping[int, Any]) -> None:
        """Take the shape: memo number of the key (below 256) -> value."""
        self._fields: list[tuple[str, str]] = []
        self._constants: list[bytes] = []
        self._pending = b""
        self._add(shape, "")
        self._flush()
        self._dtype = np.dtype(self._fields)

    def encode(self, columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint8]:
        """Return a (rows, bytes) array; columns by the path of keys: ``"3"``, ``"6/8"``."""
        rows = np.zeros(len(next(iter(columns.values()))), self._dtype)
        for i, constant in enumerate(self._constants):
            rows[f"constant{i}"] = np.frombuffer(constant, f"V{len(constant)}")[0]
        for name, column in columns.items():
            rows[name] = column
        return rows.view(np.uint8).reshape(len(rows), self._dtype.itemsize)

    def length_of(self, shape: Mapping[int, Any]) -> int:
        """Return how many bytes at the end of a row come from ``shape``, its last value, on."""
        return RowTemplate(shape)._dtype.itemsize + len(_APPEND) + len(_SETITEMS)

    def _add(self, shape: Mapping[int, Any], path: str) -> None:
        self._pending += _EMPTY_DICT + _MARK
        for key, value in shape.items():
            self._pending += _BINGET + bytes([key])
            if isinstance(value, Mapping):
                self._pending += _EMPTY_LIST
                self._add(value, f"{path}{key}/")
                self._pending += _APPEND
                continue
            opcode, dtype = _VALUES[value]
            self._pending += opcode
            self._flush()
            self._fields.append((f"{path}{key}", dtype))
        self._pending += _SETITEMS

    def _flush(self) -> None:
        if self._pending:
            self._fields.append((f"constant{len(self._constants)}", f"V{len(self._pending)}"))
            self._constants.append(self._pending)
            self._pending = b""


_VALUES = {"long": (_LONG8, "<i8"), "int": (_BININT, "<i4"), "text": (_LONG_BINGET, "<u4")}


def _long(value: int) -> bytes:
    if -(1 << 63) <= value < 1 << 63:
        return _LONG8 + value.to_bytes(8, "little", signed=True)
    return encode(str(value))
