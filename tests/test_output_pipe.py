"""A trace that goes to a pipe: C107's stream target, for where there is no room on the disk."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launch import RUN, python, start

import gpumemtrace
from gpumemtrace.analysis.check import check_trace

pytestmark = pytest.mark.simgpu

# So many events that no pipe holds them: a pipe takes 64 KiB.
TRAIN = """
import random, torch
random.seed(0)
held = []
for i in range(40_000):
    held.append(torch.empty(random.randrange(1, 1 << 16), device="cuda"))
    if len(held) > 50:
        held.pop(random.randrange(50))
print("trained")
"""
EVENTS = 40_000 + 40_000 - 50


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def copier(pipe: Path) -> subprocess.Popen[bytes]:
    with (pipe.parent / "copy.gmt").open("wb") as copy:
        return subprocess.Popen(["cat", str(pipe)], stdout=copy)


@pytest.mark.parametrize("options", [[], ["--max-disk", "1MiB"]])
def test_what_comes_out_of_it_is_the_trace(pipe: Path, options: list[str]) -> None:
    with copier(pipe) as reader:
        done = python(*RUN, *options, "-o", "pipe", "train.py", cwd=pipe.parent)
        assert reader.wait(timeout=60) == 0
    assert done.stdout == "trained\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpumemtrace: wrote pipe (")
    assert "next:" not in line  # nothing can be read there any more
    trace = gpumemtrace.open(pipe.parent / "copy.gmt")
    assert check_trace(trace).verdict == "good"
    assert (len(trace), trace.dropped_events) == (EVENTS, 0)


def test_a_shells_own_pipe(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    command = f"{sys.executable} -m gpumemtrace run -q -o >(cat > copy.gmt) train.py"
    script = "import os, subprocess, sys; sys.exit(subprocess.call(['bash', '-c', sys.argv[1]]))"
    done = python("-c", script, command, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("trained\n", "")
    until = time.monotonic() + 20
    while not (tmp_path / "copy.gmt").exists() or (  # the shell does not wait for it
        check_trace(gpumemtrace.open(tmp_path / "copy.gmt")).verdict != "good"
    ):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert len(gpumemtrace.open(tmp_path / "copy.gmt")) == EVENTS


def test_one_that_nobody_empties_is_one_warning_and_no_wait(pipe: Path) -> None:
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        begun = time.monotonic()
        done = python(*RUN, "-q", "-o", "pipe", "train.py", cwd=pipe.parent)
        lasted = time.monotonic() - begun
    finally:
        os.close(reader)
    assert done.stdout == "trained\n"
    (line,) = done.stderr.splitlines()
    assert "pipe: whoever reads it takes nothing more; training continues; the trace ends" in line
    assert lasted < 60


def test_one_whose_reader_goes_is_one_warning(pipe: Path) -> None:
    process = start([*RUN, "-q", "-o", "pipe", "train.py"], cwd=pipe.parent)
    with pipe.open("rb") as reader:
        assert len(reader.read(1000)) == 1000
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (0, "trained\n")
    (line,) = stderr.splitlines()
    assert "pipe: Broken pipe; training continues; the trace ends" in line


def test_one_that_nobody_reads_is_one_warning(pipe: Path) -> None:
    done = python(*RUN, "-q", "-o", "pipe", "train.py", cwd=pipe.parent)
    assert done.stdout == "trained\n"
    (line,) = done.stderr.splitlines()
    assert "pipe: No such device or address; training continues" in line


@pytest.mark.parametrize("output", ["-", "/dev/stdout", "/dev/fd/2"])
def test_the_programs_own_output_is_refused(tmp_path: Path, output: str) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = python(*RUN, "-o", output, "train.py", cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{output} is where the program itself writes: give a file, or a pipe" in done.stderr
