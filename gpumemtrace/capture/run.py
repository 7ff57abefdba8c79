"""Trace a program without a change to it: ``gpumemtrace run SCRIPT …``."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import NoReturn

from gpumemtrace import build_info
from gpumemtrace.capture.autostart import record_when_torch_is_imported
from gpumemtrace.capture.cuda_init import has_driver
from gpumemtrace.capture.options import RecordingOptions
from gpumemtrace.capture.output_path import choose_path
from gpumemtrace.capture.program import Program, run_program
from gpumemtrace.errors import InstallError

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
    return run_program(program)


def check_possible(options: RecordingOptions) -> None:
    """Raise `InstallError` for what can be seen without importing torch."""
    if importlib.util.find_spec("torch") is None:
        raise InstallError(
            f"torch is not installed for {sys.executable}: install a CUDA build of torch, then "
            f"build gpumemtrace for it: {build_info.how_to_rebuild()}"
        )
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


def _end(error: Exception) -> NoReturn:
    print(f"gpumemtrace: {' '.join(str(error).split())}", file=sys.stderr)
    raise SystemExit(1)
