"""Run a program on the simulated GPU with the hook, or with and without it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

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
    assert _comparable(traced.stderr) == _comparable(untraced.stderr)
    assert traced.returncode == untraced.returncode
    return traced


def _comparable(stderr: str) -> str:
    """Take out what differs between any two runs: times and thread ids in torch's log lines."""
    return re.sub(r"(?m)^(\[[WE])\d{4} [\d:.]+ +\S*", r"\1", stderr)
