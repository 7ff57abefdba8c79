"""What a process goes through while it records: signals, a stop, threads that die, exec.

C11: however it ends, nothing up to the last drain is lost (and in `test_run_recording`). What the
draining takes from the program, a ratio, is asked by benchmarks/drain_share.py.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from launch import RUN, python, start

import gpumemtrace
from gpumemtrace.analysis.check import check_trace
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace

pytestmark = pytest.mark.simgpu

PAUSE_S = 2.0

# Waits for its parent between the signals; SIGTERM is handled, and ends it in an orderly way.
SIGNALLED = """
import signal, sys, threading, time
import torch, gpumemtrace

seen = []
signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(torch.ones(777, device="cuda")))

def end(number, frame):
    gpumemtrace.mark("asked to end")
    sys.exit(4)

signal.signal(signal.SIGTERM, end)
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("ready", flush=True)
for step in range(1_000_000):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if len(seen) == 3:
        seen.append(None)
        print("seen", flush=True)
    time.sleep(0.001)
"""


def test_signals_and_a_stop(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SIGNALLED)
    process = start([*RUN, "-q", "-o", "t.gmt", "train.py"], cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for _ in range(3):
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)
    assert process.stdout.readline() == "seen\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(PAUSE_S)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (4, "")
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    assert check_trace(trace).verdict == "good"
    assert np.count_nonzero(trace.size_bytes == 4 * 777) == 3
    assert trace.dropped_events == 0 and "stalls" not in trace.run_record
    # The pause is one long step, and the time before and after it is what it was.
    times = trace.records(Kind.STEP)["time_ns"]
    lasted = np.diff(times) / 1e9
    longest = int(np.argmax(lasted))
    assert PAUSE_S * 0.9 < lasted[longest] < PAUSE_S + 3
    assert np.delete(lasted, longest).max() < PAUSE_S / 2
    assert len(lasted) - longest > 5, "it did not go on"
    assert times[-1] / 1e9 > PAUSE_S + 0.3


# Each leaves something of its own that has to end; the daemon still allocates at the very end.
THREADS = """
import sys, threading, time
import torch, gpumemtrace

def dies_in_a_phase(n):
    gpumemtrace.phase("left open").__enter__()
    torch.empty(1001 + n, dtype=torch.uint8, device="cuda")

def raises():
    with gpumemtrace.phase("raised"):
        torch.empty(2001, dtype=torch.uint8, device="cuda")
        raise SystemExit

for n in range(100):  # more than the hook has slots for, one after the other
    thread = threading.Thread(target=dies_in_a_phase if n % 2 else raises, args=(n,) * (n % 2))
    thread.start()
    thread.join()
torch.empty(3001, dtype=torch.uint8, device="cuda")

def for_ever():
    while True:
        torch.empty(4001, dtype=torch.uint8, device="cuda")

for _ in range(2):
    threading.Thread(target=for_ever, daemon=True).start()
time.sleep(0.1)
if len(sys.argv) > 1:
    import os
    os.execv(sys.executable, [sys.executable, "-c", "import torch; torch.ones(5, device='cuda')"])
"""


def check_threads(trace: Trace) -> None:
    sizes = trace.size_bytes.tolist()
    assert sizes.count(2001) == 50
    assert {1001 + n for n in range(1, 100, 2)} <= set(sizes)
    assert sizes.count(4001) > 10
    assert trace.dropped_events == 0
    phase_of = dict(zip(sizes, trace.phase.tolist(), strict=True))
    assert trace.phase_name(phase_of[1002]) == "left open"
    assert trace.phase_name(phase_of[2001]) == "raised"
    assert trace.phase_name(phase_of[3001]) == "init", "a dead thread's phase went on in another"


def test_threads_that_die_and_daemons_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "threads.py").write_text(THREADS)
    done = python(*RUN, "-q", "-o", "t.gmt", "threads.py", cwd=tmp_path)
    assert done.stderr == ""
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    assert check_trace(trace).verdict == "good"
    check_threads(trace)


def test_exec_leaves_a_trace_and_begins_another(tmp_path: Path) -> None:
    (tmp_path / "threads.py").write_text(THREADS)
    done = python(*RUN, "-q", "-o", "t.gmt", "threads.py", "exec", cwd=tmp_path)
    assert done.stderr == ""
    first, second = (gpumemtrace.open(tmp_path / name) for name in ("t.gmt", "t.1.gmt"))
    check_threads(first)
    assert check_trace(first).verdict == "recovered", "the last events were lost"
    assert check_trace(second).verdict == "good"
    assert second.size_bytes.tolist()[0] == 20
    assert first.run_record["pid"] == second.run_record["pid"]


# CLOCK_REALTIME as somebody sets it, in front of the C library's; every other clock stays.
CLOCK = r"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long step_s;
void step_clock(long seconds) { step_s += seconds; }
int clock_gettime(clockid_t clock, struct timespec* now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec += step_s;
  return result;
}
"""

CLOCK_STEPS = """
import ctypes, json, time
import torch, gpumemtrace
step_clock = ctypes.CDLL(None).step_clock
begin = time.time()
with gpumemtrace.install("t.gmt"):
    for seconds in (0, -86_400, 7 * 86_400, -3600):
        step_clock(ctypes.c_long(seconds))
        time.sleep(0.15)
        gpumemtrace.step()
        torch.empty(1000, device="cuda")
print(json.dumps([begin, time.time() - begin]))
"""


def test_a_clock_that_is_set_changes_no_time(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "clock.c").write_text(CLOCK)
    library = tmp_path / "clock.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, tmp_path / "clock.c"], check=True, timeout=60
    )
    program = f"import os\nos.environ['LD_PRELOAD'] = {str(library)!r} + ':' + "
    program += "os.environ['LD_PRELOAD']\nimport sys\n"
    program += f"os.execv(sys.executable, [sys.executable, '-c', {CLOCK_STEPS!r}])"
    begin, passed = json.loads(python("-c", program, cwd=tmp_path).stdout)
    assert passed > 5 * 86_400, "the clock was not set"
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    assert check_trace(trace).verdict == "good"
    times = trace.records(Kind.STEP)["time_ns"] / 1e9
    assert np.all(np.diff(times) > 0.14) and times[-1] < 60
    assert abs(trace.run_record["clock"]["begin_wall_ns"] / 1e9 - begin) < 60


# As daemons do when they begin; then files of its own get the numbers of those that it closed.
CLOSING = """
import os, time
import torch

torch.ones(5, device="cuda")
time.sleep(0.3)  # the trace is there
os.closerange(3, 256)
own = [open(f"own{n}", "w+") for n in range(20)]
for _ in range(50_000):
    torch.empty(5, device="cuda")
time.sleep(0.3)
print(sum(os.path.getsize(f"own{n}") for n in range(20)), flush=True)
"""


@pytest.mark.parametrize("options", [[], ["--max-disk", "1MiB"]], ids=["whole", "limited"])
def test_a_program_that_closes_what_it_did_not_open(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "daemon.py").write_text(CLOSING)
    done = python(*RUN, *options, "-o", "t.gmt", "daemon.py", cwd=tmp_path)
    assert done.stdout == "0\n", "the trace went into the program's own files"
    assert sum(path.stat().st_size for path in tmp_path.glob("own*")) == 0
    first, last = done.stderr.splitlines()
    assert "t.gmt: the program has closed the descriptor of the file; training continues" in first
    assert "wrote only the beginning of the run" in last
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    assert trace.size_bytes.tolist()[0] == 20
    assert check_trace(trace).verdict == "truncated"
