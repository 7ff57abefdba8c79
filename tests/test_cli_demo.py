"""`gpumemtrace demo` and `simulate` through the console script, as a newcomer types them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gpumemtrace

pytestmark = [pytest.mark.simgpu, pytest.mark.usefixtures("simulated_gpu")]


@pytest.fixture
def source_folder(tmp_path: Path) -> Path:
    """A working directory that holds a folder gpumemtrace/, as the root of the repository does."""
    decoy = tmp_path / "gpumemtrace"
    decoy.mkdir()
    (decoy / "__init__.py").write_text("raise RuntimeError('the source folder was imported')")
    return tmp_path


def console_script(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    script = Path(sys.prefix, "bin", "gpumemtrace")
    return subprocess.run(
        [script, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_demo_leaves_a_trace_and_two_pictures(source_folder: Path) -> None:
    demo = console_script("demo", "--simulate", "-o", "demo.gmt", cwd=source_folder)
    assert demo.returncode == 0, demo.stderr
    assert len(gpumemtrace.open(source_folder / "demo.gmt").steps) == 20
    for picture in ("demo.png", "demo.steps.png"):
        assert (source_folder / picture).read_bytes().startswith(b"\x89PNG")
        assert picture in demo.stdout
    assert "gpumemtrace simulate --gpu h100 train.py" in demo.stdout


def test_simulate_gives_the_program_the_path_of_an_untraced_run(source_folder: Path) -> None:
    show = "import sys; print(sys.path[0] == '', sys.argv)"
    run = console_script("simulate", "-q", "-c", show, "x", cwd=source_folder)
    assert (run.returncode, run.stdout) == (0, "True ['-c', 'x']\n"), run.stderr
