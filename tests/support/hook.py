"""Run a program on the simulated GPU with the hook, or with and without it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from exit_paths import without_times
from simgpu import run_simulated

_FOLDER = str(Path(__file__).parent)


def run_traced(program: str, trace: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program that uses `hook_child`, with the hook."""
    env = {"PYTHONPATH": _FOLDER, "HOOK_TRACE": str(trace), **options.pop("env", {})}
    return run_simulated(program, env=env, **options)


def run_untraced(program: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the same program without it."""
    env = {"PYTHONPATH": _FOLDER, **options.pop("env", {})}
    return run_simulated(program, env=env, **options)


def assert_same(program: str, trace: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Check that the hook changes neither exit status nor output; returns the traced run."""
    untraced = run_untraced(program, **options)
    traced = run_traced(program, trace, **options)
    assert traced.stdout == untraced.stdout
    assert without_times(traced.stderr) == without_times(untraced.stderr)
    assert traced.returncode == untraced.returncode
    return traced
