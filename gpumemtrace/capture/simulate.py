"""Run Python on the simulated GPU: the environment for it, and what it could not do.

``libgpumemtrace_simgpu.so`` is preloaded and takes every CUDA name that torch's libraries import;
``simgpu_lib/`` beside it holds one small library for each NVIDIA soname that they want to load, so
that no NVIDIA package is needed. Nothing else changes: the script, its torch and its arguments are
those of a run on a GPU. docs/simulated-gpu.md says how exact the result is.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from gpumemtrace import build_info
from gpumemtrace.capture.gpu_profiles import GpuProfile
from gpumemtrace.errors import InstallError, TorchMismatchError

__all__ = [
    "exec_simulated",
    "library_path",
    "read_report",
    "simulated_environment",
    "simulated_gpu",
]

MOST_DEVICES = 16
_DESCRIPTION_VARIABLE = "GPUMEMTRACE_SIMULATED"


def library_path() -> Path:
    """Return the library to preload; raises `InstallError` when this build has none."""
    native = find_spec("gpumemtrace._core")
    if native is None or native.origin is None:
        raise InstallError(
            f"{Path(__file__).parent.parent} has no native part: install the package"
        )
    library = Path(native.origin).with_name("libgpumemtrace_simgpu.so")
    if not library.is_file():
        why = build_info.why_no_hook() or f"{library} is missing"
        raise InstallError(
            f"this gpumemtrace was built without the simulated GPU: {why}; "
            f"{build_info.how_to_fix()}"
        )
    if any(character in str(library) for character in " :"):
        raise InstallError(
            f"{library} can't be preloaded: its path holds a space or a colon; install gpumemtrace "
            "into an environment without them"
        )
    return library


def simulated_environment(
    profile: GpuProfile,
    *,
    devices: int = 1,
    alloc_conf: str | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the whole environment of a process that sees ``devices`` cards of ``profile``.

    It starts from ``base`` (``os.environ`` by default). ``alloc_conf`` is what one would give torch
    in ``PYTORCH_CUDA_ALLOC_CONF``. Raises `InstallError` when this build has no simulated GPU,
    `TorchMismatchError` when it has one for another torch.
    """
    if not 1 <= devices <= MOST_DEVICES:
        raise InstallError(f"{devices} simulated GPUs: there can be 1 to {MOST_DEVICES}")
    library = library_path()
    _check_torch()
    environment = dict(os.environ if base is None else base)
    _put_first(environment, "LD_PRELOAD", str(library))
    _put_first(environment, "LD_LIBRARY_PATH", str(library.with_name("simgpu_lib")))
    environment.update(profile.sim_variables())
    environment["GPUMEMTRACE_SIM_DEVICES"] = str(devices)
    environment[_DESCRIPTION_VARIABLE] = json.dumps(
        {
            "gpu": profile.name,
            "memory_bytes": profile.memory_bytes,
            "compute_capability": profile.compute_capability_text,
            "sm_count": profile.sm_count,
        }
    )
    if alloc_conf is not None:
        # Newer torch reads the second name too, and lets it win.
        environment["PYTORCH_CUDA_ALLOC_CONF"] = alloc_conf
        environment["PYTORCH_ALLOC_CONF"] = alloc_conf
    return environment


def exec_simulated(
    arguments: Sequence[str],
    profile: GpuProfile,
    *,
    devices: int = 1,
    alloc_conf: str | None = None,
) -> NoReturn:
    """Become ``python <arguments>`` on the simulated GPU: its exit status and signals are ours."""
    environment = simulated_environment(profile, devices=devices, alloc_conf=alloc_conf)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execve(sys.executable, [sys.executable, *arguments], environment)


def simulated_gpu() -> dict[str, Any] | None:
    """Return what this process runs on (``gpu, memory_bytes, compute_capability, sm_count``).

    None on real hardware: then the variable is not there, or the library was not preloaded.
    """
    text = os.environ.get(_DESCRIPTION_VARIABLE)
    if text is None or _preloaded() is None:
        return None
    description: dict[str, Any] = json.loads(text)
    return description


def read_report() -> list[dict[str, Any]]:
    """Return what the simulated GPU of this process only approximated or refused so far.

    One ``{"name", "calls", "what"}`` each; ``calls`` is None for what always holds. Empty where
    there is no simulated GPU.
    """
    library = _preloaded()
    if library is None:
        return []
    size = 1 << 14
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = library.gpumemtrace_sim_report(buffer, ctypes.c_size_t(size))
        if needed <= size:
            report: list[dict[str, Any]] = json.loads(buffer.value)
            return report
        size = needed


def _preloaded() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "gpumemtrace_sim_report"):
        return None
    library.gpumemtrace_sim_report.restype = ctypes.c_size_t
    return library


def _check_torch() -> None:
    """Raise unless the torch that would be imported is the one this was built for."""
    built_for = (build_info.torch_version() or "").partition("+")[0]
    try:
        installed = version("torch").partition("+")[0]
    except PackageNotFoundError:
        raise InstallError(build_info.no_torch()) from None
    if installed != built_for:
        raise TorchMismatchError(
            f"the simulated GPU was built for torch {built_for}, but torch {installed} is "
            f"installed: {build_info.how_to_rebuild()}"
        )


def _put_first(environment: dict[str, str], variable: str, entry: str) -> None:
    """Put ``entry`` first in a list of paths, where it stands once."""
    others = [old for old in environment.get(variable, "").split(":") if old and old != entry]
    environment[variable] = ":".join([entry, *others])
