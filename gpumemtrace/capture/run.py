"""Trace a program without a change to it: ``gpumemtrace run SCRIPT …``."""

from __future__ import annotations

import atexit
import importlib.util
import os
import sys
from typing import NoReturn

from gpumemtrace import build_info
from gpumemtrace.capture import outcome
from gpumemtrace.capture.autostart import record_when_torch_is_imported
from gpumemtrace.capture.cuda_init import has_driver
from gpumemtrace.capture.options import RecordingOptions
from gpumemtrace.capture.output_path import choose_path
from gpumemtrace.capture.program import Program, run_program
from gpumemtrace.capture.say import say
from gpumemtrace.errors import GpuMemTraceError, InstallError

__all__ = ["run_traced"]


def run_traced(program: Program, options: RecordingOptions) -> int:
    """Run ``program`` in this process, recorded, and so are the Python processes that it starts.

    The session begins when the program imports torch. Returns 0; otherwise the program ends this
    process, with the exit status that it would have without us.

    Raises `InstallError` before anything has run when tracing can't work here. What only shows once
    torch is imported (a hook built for another torch) ends the program there, with exit status 1.
    """
    check_possible(options)
    options.to_environment()
    os.environ["GPUMEMTRACE_PARENT"] = str(os.getpid())
    record_when_torch_is_imported(options, _end)
    if not options.quiet:
        atexit.register(_tell_if_nothing, os.getpid())  # first: so it is the last to be called
    try:
        return run_program(program)
    except GpuMemTraceError:  # nothing has run
        atexit.unregister(_tell_if_nothing)
        raise


def check_possible(options: RecordingOptions) -> None:
    """Raise `InstallError` for what can be seen without importing torch."""
    if importlib.util.find_spec("torch") is None:
        raise InstallError(build_info.no_torch())
    if (why := build_info.why_no_hook()) is not None:
        raise InstallError(
            f"gpumemtrace was built without its torch hook ({why}): {build_info.how_to_fix()}"
        )
    if not has_driver():
        raise InstallError(
            "there is no NVIDIA driver here (libcuda.so.1): `gpumemtrace simulate` traces the same "
            "program without a GPU"
        )
    if options.output is not None:
        choose_path(options)


def _tell_if_nothing(process: int) -> None:
    if os.getpid() != process or outcome.has_recorded():
        return
    why = "allocated no GPU memory" if "torch" in sys.modules else "did not import torch"
    say(f"nothing was recorded in this process: it {why}")


def _end(error: Exception) -> NoReturn:
    atexit.unregister(_tell_if_nothing)
    print(f"gpumemtrace: {' '.join(str(error).split())}", file=sys.stderr)
    raise SystemExit(1)
