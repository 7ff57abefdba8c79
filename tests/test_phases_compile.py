"""torch.compile under automatic phases: the same graphs as without, and the phases are seen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs import PROGRAMS, places
from simgpu import result_of, run_simulated

import gpumemtrace

pytestmark = pytest.mark.simgpu


def without_times(log: str) -> str:
    """torch's log lines begin with the time and the process."""
    return re.sub(r"^([A-Z]\d{4}) [\d:.]+ \d+ ", r"\1 ", log, flags=re.MULTILINE)


def test_nothing_is_compiled_twice_and_the_phases_are_seen(tmp_path: Path) -> None:
    script = PROGRAMS / "compile_kinds.py"
    plain = run_simulated(script, cwd=tmp_path, env={"GPUMEMTRACE": "0"})
    file = tmp_path / "t.gmt"
    recording = {"GPUMEMTRACE": "1", "GPUMEMTRACE_OUTPUT": str(file), "GPUMEMTRACE_QUIET": "1"}
    traced = run_simulated(script, cwd=tmp_path, env=recording)
    assert result_of(traced) == result_of(plain)
    assert without_times(traced.stderr) == without_times(plain.stderr)

    trace = gpumemtrace.open(file)
    found = places(trace)
    assert len(trace.steps) == 4
    for step in range(4):
        assert found["loss", "forward", step] == 1
        assert found["eval", "eval", step] == 1
        assert found["after_step", "data", step + 1] == 1
        # A compiled function without a module in it begins nothing.
        assert found["collate", "data" if step else "init", step] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["t.gmt"]
