"""The pytest plugin on the simulated GPU: a test within its limits passes, one over them fails."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.simgpu, pytest.mark.usefixtures("simulated_gpu")]

TRAINING = """
import pytest, torch, gpumemtrace

kept = []

def train(steps, leak=0):
    model = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.randn(64, 1024, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if leak:
            kept.append(torch.empty(leak, dtype=torch.uint8, device="cuda"))
"""


def run_pytest(
    folder: Path, tests: str, *options: str, common: str = TRAINING
) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(common + textwrap.dedent(tests))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_limits_and_growth(tmp_path: Path) -> None:
    ran = run_pytest(
        tmp_path,
        """
        @pytest.mark.gpu_memory_limit("96 MiB")
        @pytest.mark.gpu_memory_limit("96 MiB", phase="backward")
        @pytest.mark.gpu_memory_no_growth(steps=50)
        def test_clean():
            train(60)

        @pytest.mark.gpu_memory_no_growth(steps=50)
        def test_leak_of_1_kib():
            train(60, leak=1024)

        @pytest.mark.gpu_memory_limit("1 MiB", phase="backward")
        def test_too_much():
            train(3)

        @pytest.mark.gpu_memory_no_growth(steps=50)
        def test_too_short():
            train(5)

        @pytest.mark.gpu_memory_limit("1 MiB", phase="rollout")
        def test_about_nothing():
            train(3)

        def ask_for_too_much():
            with pytest.raises(torch.OutOfMemoryError):
                torch.empty(1 << 40, device="cuda")
            train(3)

        @pytest.mark.gpu_memory_limit("90 GiB", phase="rollout")
        @pytest.mark.gpu_memory_limit("90 GiB")
        def test_ran_out_of_memory():
            ask_for_too_much()

        @pytest.mark.gpu_memory_failed_requests(1)
        @pytest.mark.gpu_memory_limit("90 GiB")
        def test_may_run_out_of_memory():
            ask_for_too_much()

        @pytest.mark.gpu_memory_limit("1 MiB")
        def test_fails_by_itself():
            train(3)
            raise ValueError("its own error")

        def test_unmarked():
            train(3)
        """,
        "--gpu-memory-simulate",
        "h100",
    )
    out = ran.stdout
    assert ran.returncode == 1, out + ran.stderr
    for name in ("test_clean", "test_unmarked", "test_may_run_out_of_memory"):
        assert f"PASSED test_it.py::{name}" in out
    assert "6 failed, 3 passed" in out
    assert "growth: 1.0 KiB on cuda:0" in out
    assert "allowed are 512 B" in out
    assert "backward: " in out and "allowed are 1.0 MiB" in out
    assert "5 steps are too few to tell, 50 are asked for" in out
    # Once for the test that is about nothing, once beside what failed.
    told, _, _ = out.partition("short test summary")  # which repeats it whole where CI is set
    assert told.count("no phase 'rollout'") == 2
    assert (
        "out of memory: 1 failed request on cuda:0, step 0 (4,096.000 GiB could not be had)" in out
    )
    assert "ValueError: its own error" in out


def test_without_a_gpu_marked_tests_are_skipped(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU here")
    ran = run_pytest(
        tmp_path,
        """
        @pytest.mark.gpu_memory_limit("1 GiB")
        def test_marked():
            raise AssertionError
        """,
        "-rs",
        # A torch without NVIDIA's libraries can't be imported here.
        common="import pytest\n",
    )
    assert "1 skipped" in ran.stdout, ran.stdout
    assert "there is no GPU here" in ran.stdout, ran.stdout


def test_a_wrong_mark_is_named(tmp_path: Path) -> None:
    ran = run_pytest(
        tmp_path,
        """
        @pytest.mark.gpu_memory_limit("24 GiB", phaze="backward")
        def test_it():
            train(1)
        """,
        "--gpu-memory-simulate",
        "h100",
    )
    assert ran.returncode != 0
    assert "'phaze' is not known" in ran.stdout + ran.stderr


def test_an_unknown_card_is_named(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "", "--gpu-memory-simulate", "h1000")
    assert ran.returncode == 4
    assert "gpu_memory_simulate:" in ran.stderr and "h100" in ran.stderr
