"""What holds at this moment: memory per device, phase, step, and how the recording does."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpumemtrace import _core
from gpumemtrace.capture.steps import counter

__all__ = ["DeviceMemory", "MemoryNow", "now"]


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """Bytes of one device, by torch's counters: requested <= allocated <= active <= reserved."""

    requested_bytes: int
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, kw_only=True)
class MemoryNow:
    """The answer of `now`."""

    devices: Mapping[int, DeviceMemory]
    """By device index: those that have reserved memory."""
    phase: str
    """Path of this thread's phase, such as ``train/forward``; "" for none."""
    step: int
    """Number of the step that is going on, from 0."""
    events: int
    """Events given to the file so far."""
    dropped: int
    """Events lost so far."""


def now() -> MemoryNow:
    """Return what holds now. Reads counters only, however long the recording: < 50 us a device.

    Outside a recording the memory is still told; phase is "", step, events and dropped are 0.
    """
    stats = _core.session_stats() if _core.session_active() else {}
    return MemoryNow(
        devices=MappingProxyType(_devices()),
        phase=_core.current_phase() if stats else "",
        step=counter.number if stats else 0,
        events=stats.get("events", 0),
        dropped=stats.get("dropped", 0),
    )


def _devices() -> dict[int, DeviceMemory]:
    torch: Any = sys.modules.get("torch")
    # Never the one to bring CUDA up.
    if torch is None or not torch.cuda.is_initialized():
        return {}
    found = {}
    for index in range(torch.cuda.device_count()):
        stats = torch._C._cuda_memoryStats(index)
        if stats["reserved_bytes"]["all"]["current"]:
            found[index] = DeviceMemory(
                requested_bytes=stats["requested_bytes"]["all"]["current"],
                allocated_bytes=stats["allocated_bytes"]["all"]["current"],
                active_bytes=stats["active_bytes"]["all"]["current"],
                reserved_bytes=stats["reserved_bytes"]["all"]["current"],
            )
    return found
