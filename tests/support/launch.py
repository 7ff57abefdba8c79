"""Start Python programs on the simulated GPU, plain or by `gpumemtrace run`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simgpu import skip_without_simgpu

from gpumemtrace.capture.gpu_profiles import find_profile
from gpumemtrace.capture.simulate import simulated_environment

__all__ = ["RUN", "python", "start"]

RUN = ("-m", "gpumemtrace", "run")


def start(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    devices: int = 1,
    **options: Any,
) -> subprocess.Popen[str]:
    """Start ``python <arguments>`` with both outputs piped."""
    skip_without_simgpu()
    environment = simulated_environment(find_profile("h200"), devices=devices)
    for name in [name for name in environment if name.startswith("GPUMEMTRACE_")]:
        if not name.startswith("GPUMEMTRACE_SIM"):
            del environment[name]
    environment.update({"PYTHONHASHSEED": "0", **(env or {})})
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def python(
    *arguments: str, cwd: Path, check: bool = True, timeout: float = 120, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run ``python <arguments>`` to its end; with ``check`` it has to end with status 0."""
    process = start(arguments, cwd=cwd, **options)
    stdout, stderr = process.communicate(timeout=timeout)
    if check:
        assert process.returncode == 0, f"exit status {process.returncode}\n{stdout}\n{stderr}"
    return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)
