"""GIVEN a program that looks at its modules, WHEN it is recorded, THEN all is as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from programs import PROGRAMS
from simgpu import result_of, run_simulated

pytestmark = pytest.mark.simgpu


def outcome(mode: str, folder: Path) -> dict[str, Any]:
    done = run_simulated(PROGRAMS / "modules_as_ever.py", args=[mode, str(folder / f"{mode}.gmt")])
    found: dict[str, Any] = result_of(done)
    return found


@pytest.fixture(scope="module")
def untraced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return outcome("off", tmp_path_factory.mktemp("off"))


@pytest.mark.parametrize("mode", ["phases", "modules", "ended"])
def test_a_program_sees_of_its_modules_what_it_always_did(
    tmp_path: Path, untraced: dict[str, Any], mode: str
) -> None:
    found = outcome(mode, tmp_path)
    assert found.keys() == untraced.keys() and len(found) == 14
    for name, expected in untraced.items():
        assert found[name] == expected, name
