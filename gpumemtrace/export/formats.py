"""The formats by name. Each is a module with ``write(trace, output, options)``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from gpumemtrace.trace_data import TraceData

__all__ = ["ExportFormat", "ExportOptions", "Written", "load_format"]


@dataclass(frozen=True)
class ExportOptions:
    """What of a trace is written.

    ``devices``: None = all. ``until_ns``: leave out what comes later. ``table``: of those formats
    that are tables, ``events`` or ``allocations``.
    """

    devices: frozenset[int] | None = None
    until_ns: int | None = None
    table: str = "events"

    def wants(self, device: int) -> bool:
        """Whether the records of a device are written."""
        return self.devices is None or device in self.devices


@dataclass(frozen=True)
class Written:
    """What was written: how many of what, and what could not be said in this format."""

    count: int
    unit: str
    remarks: tuple[str, ...] = ()


class ExportFormat(Protocol):
    """What a module of a format provides."""

    write: Callable[[TraceData, Path, ExportOptions], Written]


def load_format(name: str) -> ExportFormat:
    """Return the format ``name`` (see `gpumemtrace.export.FORMATS`)."""
    return cast(ExportFormat, importlib.import_module(f"gpumemtrace.export.{name}"))
