"""How large a block PyTorch's allocator makes for a request.

The rules are those of torch/c10/cuda/CUDACachingAllocator.cpp (`round_size`, `should_split`): sizes
are rounded to 512 bytes (or to divisions of powers of two, when set so), and of a free block in a
large segment the rest is split off only when it is above 1 MiB.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from typing import Any

__all__ = ["BlockSizes", "rounded_to_512"]

_MIN_BLOCK = 512
_SMALL_REQUEST = 1 << 20  # more comes from large segments
_SMALL_SEGMENT = 2 << 20


def rounded_to_512(size: int) -> int:
    """Return ``size`` rounded up to what the allocator hands out at least."""
    return (size + _MIN_BLOCK - 1) // _MIN_BLOCK * _MIN_BLOCK


class BlockSizes:
    """The blocks in use of one device's large segments, and what a request would be given."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Take the ``allocator_settings`` of a snapshot; what they lack is as PyTorch has it."""
        most = settings.get("max_split_size", -1)
        self._max_split = most if isinstance(most, int) and most >= 0 else 1 << 63
        self._divisions = _divisions(settings.get("roundup_power2_divisions"))
        self._segments: list[tuple[int, int]] = []  # of large requests, not expandable
        self._begins: list[int] = []

    def add_segment(self, address: int, size: int) -> None:
        """Take a segment as a whole from the driver (not the pages of an expandable one)."""
        if size > _SMALL_SEGMENT:
            insort(self._segments, (address, address + size))

    def remove_segment(self, address: int, size: int) -> None:
        """Give it back; one that is not known is no matter."""
        place = bisect_left(self._segments, (address, address + size))
        if self._segments[place : place + 1] == [(address, address + size)]:
            del self._segments[place]

    def take(self, address: int, requested: int) -> int:
        """Hand out a block at ``address`` and return its size in bytes."""
        size = self.rounded(requested)
        place = bisect_right(self._segments, (address, 1 << 64)) - 1
        if place < 0 or address >= self._segments[place][1] or size <= _SMALL_REQUEST:
            return size
        at = bisect_right(self._begins, address)
        end = self._segments[place][1]
        if at < len(self._begins):
            end = min(end, self._begins[at])
        if not self._begins or self._begins[at - 1] != address:
            self._begins.insert(at, address)
        rest = end - address - size
        is_split = size < self._max_split and rest > _SMALL_REQUEST
        return size if is_split or rest < 0 else size + rest

    def give_back(self, address: int) -> None:
        """The block at ``address`` is free again."""
        place = bisect_left(self._begins, address)
        if self._begins[place : place + 1] == [address]:
            del self._begins[place]

    def rounded(self, requested: int) -> int:
        """Return ``requested`` as the allocator rounds it before it looks for a block."""
        size = max(requested, 1) if requested else 0
        # The setting is by size in MiB: 1, 2, 4, ... and the last for all above.
        index = min(max(size.bit_length() - 21, 0), len(self._divisions) - 1)
        divisions = self._divisions[index] if self._divisions else 0
        if divisions > 1 and size > _MIN_BLOCK * divisions:
            step = (1 << (size.bit_length() - 1)) // divisions
            return (size + step - 1) // step * step if step else size
        return rounded_to_512(size)


def _divisions(setting: object) -> list[int]:
    """Return the divisions for 1 MiB, 2 MiB, 4 MiB, ...; empty when the setting is off."""
    if not isinstance(setting, dict):
        return []
    found = [setting.get(str(1 << i), 0) for i in range(16)]
    return found if any(isinstance(n, int) and n > 1 for n in found) else []
