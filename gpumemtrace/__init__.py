"""Where PyTorch GPU memory goes: every alloc and free of a run, with its phase and step.

Importing this is cheap: each name below loads its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpumemtrace.capture.allocator import TracingAllocator as TracingAllocator
    from gpumemtrace.capture.allocator import library_path as library_path
    from gpumemtrace.capture.call_sites import stacks as stacks
    from gpumemtrace.capture.flight import dump as dump
    from gpumemtrace.capture.marks import mark as mark
    from gpumemtrace.capture.marks import phase as phase
    from gpumemtrace.capture.marks import step as step
    from gpumemtrace.capture.marks import tag as tag
    from gpumemtrace.capture.marks import wrap as wrap
    from gpumemtrace.capture.memory_now import now as now
    from gpumemtrace.capture.session import Session as Session
    from gpumemtrace.capture.session import install as install
    from gpumemtrace.capture.session import uninstall as uninstall
    from gpumemtrace.capture.watch import watch as watch
    from gpumemtrace.errors import GpuMemTraceError as GpuMemTraceError
    from gpumemtrace.trace import Trace as Trace
    from gpumemtrace.trace import open as open

__version__ = "0.1.0"

# Public name -> module. One line per name; the imports above are for type checkers only.
_MODULES = {
    "GpuMemTraceError": "errors",
    "Session": "capture.session",
    "Trace": "trace",
    "TracingAllocator": "capture.allocator",
    "dump": "capture.flight",
    "install": "capture.session",
    "library_path": "capture.allocator",
    "mark": "capture.marks",
    "now": "capture.memory_now",
    "open": "trace",
    "phase": "capture.marks",
    "stacks": "capture.call_sites",
    "step": "capture.marks",
    "tag": "capture.marks",
    "uninstall": "capture.session",
    "watch": "capture.watch",
    "wrap": "capture.marks",
}

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'gpumemtrace' has no attribute {name!r}")
    try:
        module = importlib.import_module(f"gpumemtrace.{_MODULES[name]}")
    except ImportError as error:
        if error.name == "gpumemtrace" and "_core" in str(error):
            raise ImportError(
                f"{__path__[0]} is the source of gpumemtrace, without its native part: run Python "
                "in another folder to get the installed package"
            ) from error
        raise
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
