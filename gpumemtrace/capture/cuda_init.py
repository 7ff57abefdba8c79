"""Whether there is a driver, and which line of the program initialised CUDA.

A late ``install()`` can then say what came first. It costs nothing until CUDA is initialised: torch
keeps a list of functions to call at that moment, and ours is one of them.
"""

from __future__ import annotations

import ctypes
import importlib
import linecache
import sys
from types import FrameType

from gpumemtrace.capture.import_watch import when_imported

__all__ = ["find_initialiser", "has_driver", "watch_cuda_init"]

_NOT_THE_PROGRAM = ("torch", "gpumemtrace", "importlib", "contextlib", "threading", "runpy")

_watching = False
_initialiser: tuple[str, int] | None = None


def has_driver() -> bool:
    """Whether an NVIDIA driver (or the simulated one) can be loaded; does not initialise CUDA."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def watch_cuda_init() -> None:
    """Have torch tell us when CUDA is initialised, as soon as torch has been imported."""
    global _watching
    if not _watching:
        _watching = True
        when_imported("torch.cuda", _ask_torch)


def find_initialiser() -> str | None:
    """Return ``file:line: source`` of what initialised CUDA; None when nobody was watching then."""
    if _initialiser is None:
        return None
    filename, line = _initialiser
    source = linecache.getline(filename, line).strip()
    return f"{filename}:{line}" + (f": {source}" if source else "")


def _ask_torch() -> None:
    cuda = importlib.import_module("torch.cuda")
    if not cuda.is_initialized():
        cuda._lazy_call(_note_caller)


def _note_caller() -> None:
    """Note the innermost line that is the program's own. Runs inside ``torch.cuda._lazy_init``."""
    global _initialiser
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if module not in _NOT_THE_PROGRAM:
            _initialiser = (frame.f_code.co_filename, frame.f_lineno)
            return
        frame = frame.f_back
