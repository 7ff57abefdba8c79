"""Record this process because the environment says so: ``GPUMEMTRACE=1 python train.py``.

`gpumemtrace.pth`, which Python reads at start-up, calls `activate` when the variable is set; when
it is not, this file is not even read. The session begins when torch has been imported, before the
next line of whoever imported it. A process that doesn't import torch, or uses no CUDA, leaves
nothing behind, so the variable may be set for a whole tree of processes: one file for each that
used CUDA.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from gpumemtrace.capture.import_watch import forget, when_imported
from gpumemtrace.capture.options import RecordingOptions, is_switched_on
from gpumemtrace.capture.say import say

__all__ = ["activate", "record_when_torch_is_imported"]

_activated = False
_waiting: Callable[[], None] | None = None


def activate() -> None:
    """Do what the environment asks, once. Never raises: no Python may fail to start for it."""
    global _activated
    try:
        # Python reads a .pth twice where lib64 is a link to lib.
        if _activated or not is_switched_on():
            return
        _activated = True
        options = RecordingOptions.from_environment()
        os.environ.setdefault("GPUMEMTRACE_PARENT", str(os.getpid()))
        record_when_torch_is_imported(options, _warn)
    except Exception as error:
        _warn(error)


def record_when_torch_is_imported(
    options: RecordingOptions, on_failure: Callable[[Exception], None]
) -> None:
    """Begin a session as soon as torch is there. Replaces what was asked for before.

    ``on_failure`` gets the error when tracing can't work; what it raises goes up through the
    ``import torch``, if it is a ``SystemExit``.
    """
    global _waiting
    if _waiting is not None:
        forget("torch", _waiting)

    def begin() -> None:
        try:
            from gpumemtrace.capture import session

            if session.current_session() is None:
                session.start(options, lazy=True, launched=True)
        except Exception as error:
            on_failure(error)

    _waiting = begin
    when_imported("torch", begin)


def _warn(error: Exception) -> None:
    text = " ".join(str(error).split()) or type(error).__name__
    say(f"not recording: {text}")
