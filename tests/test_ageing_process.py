"""A limit of disk space in a real recording: the pipeline, a killed process, disks that say no."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from aged import MIB, disk_bytes
from launch import RUN, python, start

import gpumemtrace
from gpumemtrace.analysis.aged import find_aged
from gpumemtrace.analysis.check import check_trace
from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.schema import Kind

pytestmark = pytest.mark.simgpu

# Steps of the allocator alone: blocks come and go, one lives on to the next step; every 400th step
# is higher than all before.
TRAIN = """
import sys, torch, gpumemtrace
steps, told = int(sys.argv[1]), []
before = torch.empty(1 << 20, device="cuda")
for step in range(steps):
    torch.cuda.reset_peak_memory_stats()
    with gpumemtrace.phase("forward"):
        high = 1 + step // 400 if step % 400 == 7 else 0
        sizes = [(step * 7919 + i * 104729) % 299_993 + 1 for i in range(60)]
        blocks = [torch.empty(size, device="cuda") for size in sizes]
        more = torch.empty(high * (40 << 20), device="cuda")
    with gpumemtrace.phase("backward"):
        after = torch.empty((step * 104729) % (3 << 20) + 1, device="cuda")
        del blocks, more, before
    before = after
    told.append((torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()))
    gpumemtrace.step()
print(*(f"{peak},{end}" for peak, end in told))
"""
STEPS = 4000


def test_a_recording_stays_below_its_limit_and_equals_torchs_counters(tmp_path: Path) -> None:
    """C107: the cap holds, both ends are in full detail, and what is replaced is older detail."""
    (tmp_path / "train.py").write_text(TRAIN)
    run = [*RUN, "--max-disk", "1MiB", "-o", "long.gmt", "train.py", str(STEPS)]
    process = start(run, cwd=tmp_path)
    highest = 0
    watching = threading.Event()

    def watch() -> None:
        nonlocal highest
        while not watching.wait(0.002):
            try:
                highest = max(highest, disk_bytes(tmp_path, process.pid))
            except FileNotFoundError:
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    stdout, stderr = process.communicate(timeout=300)
    watching.set()
    watcher.join()
    assert process.returncode == 0, stderr
    assert 0 < highest <= MIB
    assert [path.name for path in tmp_path.iterdir()].count("long.gmt") == 1
    assert len(list(tmp_path.iterdir())) == 2  # nothing is left beside it
    trace = gpumemtrace.open(tmp_path / "long.gmt")
    result = check_trace(trace)
    assert (result.verdict, result.dropped_events) == ("good", 0)
    assert result.aged.left_out_events > len(trace)
    (device,) = find_peaks(trace)
    told = np.array([pair.split(",") for pair in stdout.split()], np.int64)
    # Steps that are told as one have the number of the first, the peak of all, the end of the last.
    number = trace.steps.number
    rows, peaks = len(number), np.maximum.reduceat(told[:, 0], number)
    assert device.steps.peak["allocated"][:rows].tolist() == peaks.tolist()
    last = np.append(number[1:], STEPS) - 1
    assert device.steps.end["allocated"][:rows].tolist() == told[last, 1].tolist()
    aged = find_aged(trace)
    assert aged.detailed[0][0] == 0 and aged.detailed[-1][1] >= STEPS - 1
    assert 0 < aged.first < aged.last < STEPS - 3
    assert {0, 1, 2, STEPS - 3, STEPS - 2, STEPS - 1} <= set(number.tolist())
    assert find_peaks(trace)[0].lines["allocated"].step % 400 == 7
    assert trace.peak().is_summarised is False


def _allocs_of(steps: int) -> int:
    return 1 + 61 * steps + len(range(7, steps, 400))


def test_killed_at_any_moment_it_leaves_one_file_with_all_that_was_recorded(tmp_path: Path) -> None:
    told = 'os.pwrite(done, b"%9d" % (step + 1), 0)'
    script = TRAIN.replace("gpumemtrace.step()", f"gpumemtrace.step()\n    {told}")
    opened = 'done = os.open("done", os.O_WRONLY | os.O_CREAT)'
    (tmp_path / "train.py").write_text(f"import os\n{opened}\n{script}")
    aged = 0
    for kill in range(6):
        path = tmp_path / f"{kill}.gmt"
        run = [*RUN, "--max-disk", "1MiB", "-o", path.name, "train.py", "1000000"]
        process = start(run, cwd=tmp_path)
        until = time.monotonic() + 60
        while not path.exists() or path.stat().st_size < 400_000:  # ageing begins at 7/16
            assert time.monotonic() < until
            time.sleep(0.01)
        time.sleep(random.Random(kill).uniform(0, 3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        trace = gpumemtrace.open(path)
        result = check_trace(trace)
        assert (result.verdict, result.dropped_events) == ("recovered", 0)
        number = trace.steps.number
        assert number[0] == 0
        assert (np.diff(number) > 0).all()
        assert number[-1] + 1 >= int((tmp_path / "done").read_text())
        left_out = int(trace.records(Kind.AGED)["address"].sum())
        allocs = int((trace.kind == Kind.ALLOC).sum()) + left_out
        whole = int(number[-1]) + 1  # steps; the next one may have begun
        assert _allocs_of(whole) <= allocs <= _allocs_of(whole + 1)
        aged += left_out > 0
    assert aged >= 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["train.py", "done", *(f"{kill}.gmt" for kill in range(6))]
    )


def test_what_cannot_be_summarised_ends_the_trace_with_a_reason(tmp_path: Path) -> None:
    # Every block stays in use: nothing can be left out.
    code = """
    import torch
    held = [torch.empty((i * 7919) % 9973 + 1, device="cuda") for i in range(400_000)]
    print("trained")
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(code))
    done = python(*RUN, "--max-disk", "1MiB", "-o", "a.gmt", "train.py", cwd=tmp_path)
    assert done.stdout == "trained\n"
    first, last = done.stderr.splitlines()
    assert "a.gmt: max_disk is reached, and older parts can't be summarised: " in first
    assert "; training continues; the trace ends at " in first
    assert "wrote only the beginning of the run" in last
    assert (tmp_path / "a.gmt").stat().st_size <= MIB
    trace = gpumemtrace.open(tmp_path / "a.gmt")
    assert check_trace(trace).verdict == "truncated"
    assert len(trace) > 10_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)  # a trace may be open yet


def test_a_limit_of_the_size_of_the_disk_is_never_exceeded(
    tmp_path: Path, small_disk: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    limited = [*RUN, "--max-disk", "1MiB", "-o", str(small_disk / "a.gmt"), "train.py", str(STEPS)]
    done = python(*limited, cwd=tmp_path, timeout=300)
    assert "can't write" not in done.stderr
    assert check_trace(gpumemtrace.open(small_disk / "a.gmt")).verdict == "good"


def test_a_full_disk_is_one_warning_and_the_training_goes_on(
    tmp_path: Path, small_disk: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    path = small_disk / "a.gmt"
    plain = python("train.py", str(STEPS), cwd=tmp_path, timeout=300)
    traced = python(*RUN, "-q", "-o", str(path), "train.py", str(STEPS), cwd=tmp_path, timeout=300)
    assert traced.stdout == plain.stdout
    (line,) = traced.stderr.splitlines()
    assert f"can't write {path}: No space left on device; training continues; the trace" in line
    trace = gpumemtrace.open(path)
    assert check_trace(trace).verdict == "truncated"
    assert len(trace) > 100_000


@pytest.mark.parametrize("limit", ["1536KiB", "64MiB"])
def test_a_disk_smaller_than_the_limit_is_one_warning(
    tmp_path: Path, small_disk: Path, limit: str
) -> None:
    """It is full while a smaller file is made beside the other, or before that begins."""
    (tmp_path / "train.py").write_text(TRAIN)
    path = small_disk / "a.gmt"
    run = [*RUN, "-q", "--max-disk", limit, "-o", str(path), "train.py", str(2 * STEPS)]
    traced = python(*run, cwd=tmp_path, timeout=300)
    assert len(traced.stdout.split()) == 2 * STEPS
    (line,) = traced.stderr.splitlines()
    assert f"can't write {path}: No space left on device; training continues; the trace" in line
    assert [file.name for file in small_disk.iterdir()] == ["a.gmt"]
    trace = gpumemtrace.open(path)
    assert check_trace(trace).verdict == "truncated"
    assert len(trace) > 50_000


def test_a_read_only_disk_is_one_warning_at_the_start(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    path = small_disk / "a.gmt"
    traced = python(*RUN, "--max-disk", "1MiB", "-o", str(path), "train.py", "5", cwd=tmp_path)
    assert len(traced.stdout.split()) == 5
    assert traced.stderr.count("Read-only file system") == 1
    assert "Traceback" not in traced.stderr
    assert not path.exists()


def test_a_folder_that_may_not_be_written_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write everywhere")
    traced = python(*RUN, "-o", str(folder / "a.gmt"), "train.py", "5", cwd=tmp_path)
    assert len(traced.stdout.split()) == 5
    assert traced.stderr.count("Permission denied") == 1


@pytest.mark.parametrize("what", ["deleted", "renamed"])
def test_a_limited_file_that_is_moved_under_way(tmp_path: Path, what: str) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    path, other = tmp_path / "a.gmt", tmp_path / "b.gmt"
    run = [*RUN, "--max-disk", "1MiB", "-o", "a.gmt", "train.py", str(STEPS)]
    process = start(run, cwd=tmp_path)
    until = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < 100_000:
        assert time.monotonic() < until
        time.sleep(0.005)
    if what == "deleted":
        path.unlink()
    else:
        path.rename(other)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0
    assert len(stdout.split()) == STEPS
    assert not path.exists()
    if what == "deleted":
        assert stderr.count("the file was deleted; training continues") == 1
        assert "no trace is left: a.gmt: the file was deleted" in stderr
        assert not other.exists()
    else:
        assert "nothing is at a.gmt any more: the trace was moved or deleted under way" in stderr
        trace = gpumemtrace.open(other)
        assert check_trace(trace).verdict == "good"
        assert find_aged(trace)
        assert other.stat().st_size <= MIB


# A worker, such as a data loader's, that lives as long as the run.
WORKER = """
time.sleep(0.3)  # the trace is there
pid = os.fork()
if pid == 0:
    time.sleep(600)
    os._exit(0)
"""


def test_a_forked_worker_keeps_no_room_of_files_that_were_replaced(tmp_path: Path) -> None:
    look = "print(*(os.readlink(f'/proc/{pid}/fd/{n}') for n in os.listdir(f'/proc/{pid}/fd')))"
    (tmp_path / "train.py").write_text(
        f"import os, time\n{TRAIN.replace('for step in', WORKER + 'for step in', 1)}\n"
        f"{look}\nos.kill(pid, 9)\nos.waitpid(pid, 0)"
    )
    done = python(*RUN, "--max-disk", "1MiB", "-o", "a.gmt", "train.py", "2000", cwd=tmp_path)
    held = done.stdout.splitlines()[-1]
    assert "pipe:" in held, "nothing was looked at"
    assert str(tmp_path) not in held and "/dev/shm" not in held
    trace = gpumemtrace.open(tmp_path / "a.gmt")
    assert check_trace(trace).verdict == "good"
    assert find_aged(trace), "it was not replaced"


# As a service that root starts: its shared memory is root's, and only root may take its name away.
DROPPING = """
import os, time
time.sleep(0.3)  # the trace is there
os.chmod("closed", 0o555)
os.setuid(65534)
"""


def test_nothing_is_put_behind_a_trace_that_ended_before_its_process(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    (tmp_path / "closed").mkdir()
    drop = DROPPING + "torch.empty(1 << 30, device='cuda')\n"
    script = TRAIN.replace("for step in", drop + "for step in", 1) + "sys.stdout.flush()\n"
    (tmp_path / "train.py").write_text(script + "os.kill(os.getpid(), 9)")
    run = [*RUN, "--max-disk", "1MiB", "-o", "closed/a.gmt", "train.py", str(2 * STEPS)]
    done = python(*run, cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(done.stdout.split()) == 2 * STEPS
    assert done.stderr.count("training continues; the trace ends at") == 1
    result = check_trace(gpumemtrace.open(tmp_path / "closed" / "a.gmt"))
    assert result.verdict == "truncated"


def test_a_limit_of_file_size_is_a_warning_where_its_signal_is_not_ignored(tmp_path: Path) -> None:
    program = """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    import torch, gpumemtrace
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    session = gpumemtrace.install("a.gmt")
    print("alive", session.closed)
    """
    done = python("-c", textwrap.dedent(program), cwd=tmp_path)
    assert done.stdout == "alive True\n"
    assert done.stderr.count("gpumemtrace records nothing") == 1
    assert "File too large" in done.stderr
