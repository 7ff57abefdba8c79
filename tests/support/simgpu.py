"""Run a piece of Python on the simulated GPU, in a child process, with the installed package.

The child's exit status, stdout and stderr are what a test looks at: a crash is a failed test.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpumemtrace.capture.gpu_profiles import find_profile, make_profile
from gpumemtrace.capture.simulate import library_path, simulated_environment
from gpumemtrace.errors import InstallError

__all__ = ["result_of", "run_simulated", "skip_without_simgpu"]


def skip_without_simgpu() -> None:
    """Skip the running test, with the reason, when this build has no simulated GPU."""
    try:
        library_path()
    except InstallError as error:
        pytest.skip(f"no simulated GPU: {error}")


def run_simulated(
    code_or_script: str | Path,
    *,
    args: Sequence[str] = (),
    gpu: str = "h200",
    memory: str | int | None = None,
    devices: int = 1,
    torch_conf: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run Python code (a ``str``) or a script (a ``Path``) on ``devices`` simulated cards.

    ``memory`` replaces the card by one of that size with the same compute capability;
    ``torch_conf`` is torch's allocator configuration; ``env`` is added to the environment. With
    ``check`` a child that fails fails the test, with its stderr.
    """
    skip_without_simgpu()
    profile = find_profile(gpu)
    if memory is not None:
        profile = make_profile(memory, profile.compute_capability_text, sm_count=profile.sm_count)
    environment = simulated_environment(profile, devices=devices, alloc_conf=torch_conf)
    environment.update(env or {})
    if isinstance(code_or_script, Path):
        target = [str(code_or_script)]
    else:
        target = ["-c", textwrap.dedent(code_or_script)]
    done = subprocess.run(
        [sys.executable, *target, *args],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if check and done.returncode != 0:
        pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done


def result_of(done: subprocess.CompletedProcess[str]) -> Any:
    """Return what the child printed on its last line of stdout, as JSON."""
    return json.loads(done.stdout.strip().splitlines()[-1])
