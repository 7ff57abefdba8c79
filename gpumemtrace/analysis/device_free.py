"""What the whole device has free at any instant, from its samples."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from gpumemtrace.records import Batch
from gpumemtrace.schema import Kind

__all__ = ["DeviceFree"]


class DeviceFree:
    """Free bytes of one device: its capacity, less what PyTorch has reserved at that instant, less
    what else was in use (contexts, libraries, other processes) when it was sampled last.
    """

    def __init__(self, device: int) -> None:
        """Watch ``device``."""
        self._device = device
        self._records: list[int] = []
        self._others: list[int] = []
        self._capacities: list[int] = []

    def feed(self, batch: Batch, reserved: npt.NDArray[np.int64]) -> None:
        """Take the samples of a batch; ``reserved``: bytes of the device at each of its records."""
        raw = batch.raw
        rows = batch.rows_of(Kind.DEVICE_USED)
        rows = rows[raw["device"][rows] == self._device]
        self._records += (batch.first_record + rows).tolist()
        self._others += np.maximum(raw["size_bytes"][rows] - reserved[rows], 0).tolist()
        self._capacities += raw["stream"][rows].tolist()

    def at(self, record: int, reserved_bytes: int) -> int | None:
        """Return what is free after ``record``, when that much is reserved; None without a sample.

        Before the first sample, that one counts.
        """
        if not self._records:
            return None
        i = max(bisect_right(self._records, record) - 1, 0)
        capacity = self._capacities[i]
        return max(capacity - self._others[i] - reserved_bytes, 0) if capacity else None
