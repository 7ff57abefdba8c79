"""Every error this package raises on purpose, under one root.

Messages say what happened, where, and what to do.
"""

from __future__ import annotations

__all__ = [
    "CorruptTraceError",
    "GpuMemTraceError",
    "InstallError",
    "LateInstallError",
    "NotATraceError",
    "RulesError",
    "SnapshotError",
    "TorchMismatchError",
    "TraceError",
    "UnsupportedVersionError",
]


class GpuMemTraceError(Exception):
    """Root of the errors raised by gpumemtrace."""


class InstallError(GpuMemTraceError, RuntimeError):
    """Tracing (or the simulated GPU) can't be started here."""


class LateInstallError(InstallError):
    """CUDA memory was in use before ``install()`` was called."""


class TorchMismatchError(InstallError):
    """The torch hook was built for another torch than the one imported."""


class TraceError(GpuMemTraceError, ValueError):
    """A file can't be read as a trace."""


class NotATraceError(TraceError):
    """The file does not begin like a gpumemtrace trace."""


class UnsupportedVersionError(TraceError):
    """The file was written by a newer format version than this reader knows."""


class CorruptTraceError(TraceError):
    """Part of the file failed its check; ``offset`` says where (bytes from the start)."""

    def __init__(self, message: str, *, offset: int | None = None) -> None:
        super().__init__(message)
        self.offset = offset


class SnapshotError(GpuMemTraceError, ValueError):
    """A file can't be read as a PyTorch memory snapshot."""


class RulesError(GpuMemTraceError):
    """Rules can't be used: what is wrong, in which one, and what is possible instead."""
