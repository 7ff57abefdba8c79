"""A flight recording: the end of a run, kept in memory and written when there is reason to."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from hook import run_traced
from launch import RUN, python, start

import gpumemtrace
from gpumemtrace.analysis.check import check_trace
from gpumemtrace.analysis.facts import FlightRecording, flight_recording
from gpumemtrace.analysis.lines import LineStream
from gpumemtrace.capture.output_path import check_writable
from gpumemtrace.schema import Kind, StepFlags

pytestmark = pytest.mark.simgpu

# Blocks that are split and others that are not, freed at random; memory given back to the driver,
# blocks that wait for another stream, a private pool. Torch's counters at every step.
STEPS = """
    import json, sys, time
    import torch
    import hook_child

    hook_child.start(ring_bytes=8 << 20, flight_window_ms=400, time_resolution_ns=100)
    churn = hook_child.Churn(int(sys.argv[1]), shared=0.05, emptied=0.005)
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = [torch.empty(3_300_000 * i, dtype=torch.uint8, device="cuda") for i in (1, 2)]
    steps = hook_child.Steps()
    begin = time.monotonic()
    while time.monotonic() < begin + 1.5:
        churn.go(60)
        time.sleep(0.005)
        steps.end()
    stats = hook_child.stop()
    print(json.dumps([stats["events"], len(churn.kept) + len(inside)]))
    print(json.dumps(steps.counters))
"""

TRAINING = """
import os, signal, sys, time
import torch
import gpumemtrace

model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(model.parameters())
begin = time.monotonic()
while time.monotonic() < begin + 1:
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
{end}
"""


@pytest.mark.parametrize(
    ("seed", "settings"), [(0, None), (1, None), (2, "expandable_segments:True")]
)
def test_lines_of_what_is_kept_are_exact(tmp_path: Path, seed: int, settings: str | None) -> None:
    path = tmp_path / "t.gmt"
    done = run_traced(STEPS, path, args=[str(seed)], devices=2, memory="2GiB", torch_conf=settings)
    (events, in_use), counters = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    trace = gpumemtrace.open(path)
    flight = flight_of(trace)
    assert flight.events_before > 1000
    assert flight.events_before + trace.record_count > events, "told again, or twice"
    assert check_trace(trace).verdict == "good"
    assert check_trace(trace).live_blocks == in_use
    now: dict[str, dict[str, int]] = {}
    last_step = seen = 0
    for batch, lines in LineStream(trace):
        raw = batch.raw
        for i, kind in enumerate(raw["kind"].tolist()):
            if kind == Kind.STEP and not raw["flags"][i] & StepFlags.SET:
                last_step = int(raw["size_bytes"][i])
                expected = {
                    device: {line: values[f"{line}_bytes.current"] for line in lines.values}
                    for device, values in counters[last_step - 1].items()
                }
                assert now == expected, f"step {last_step}"
                seen += 1
            elif (device := int(lines.device[i])) >= 0:
                now[str(device)] = {name: int(line[i]) for name, line in lines.values.items()}
                assert not lines.uncertain[i]
    assert last_step == len(counters)
    assert 3 < seen < len(counters)
    # The step in which the window begins is no whole one.
    assert len(trace.steps) == seen - 1
    assert trace.steps.number[0] == last_step - seen + 1
    # The peaks before it and those in it are those of the run.
    peaks = gpumemtrace_peaks(trace)
    for device, values in counters[-1].items():
        for line, before in flight.peak_bytes_before[int(device)].items():
            if line != "device_used":
                assert max(before, peaks[device][line]) == values[f"{line}_bytes.peak"], line


def gpumemtrace_peaks(trace: gpumemtrace.Trace) -> dict[str, dict[str, int]]:
    """The highest of each line within the trace."""
    found: dict[str, dict[str, int]] = {}
    for _, lines in LineStream(trace):
        for device in lines.devices:
            peaks = found.setdefault(str(device), {})
            for name, values in lines.points(device).values.items():
                peaks[name] = max([peaks.get(name, 0), *values.tolist()])
    return found


def flight_of(trace: gpumemtrace.Trace) -> FlightRecording:
    flight = flight_recording(trace.run_record)
    assert flight is not None
    return flight


def train(
    tmp_path: Path, end: str, *options: str, window: str = "300ms", **more: Any
) -> tuple[int, str, str]:
    """Train for a second with a flight recording, then do what ``end`` says."""
    Path(tmp_path, "train.py").write_text(TRAINING.format(end=end))
    arguments = (*RUN, "-o", "t.gmt", "--flight-recorder", window, *options, "train.py")
    done = python(*arguments, cwd=tmp_path, check=False, **more)
    return done.returncode, done.stdout, done.stderr


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("*.gmt"))


def test_normal_end(tmp_path: Path) -> None:
    status, _, stderr = train(tmp_path, "")
    assert status == 0
    assert files(tmp_path) == ["t.gmt"]
    assert stderr.startswith("gpumemtrace: wrote t.gmt (the last 300ms of ")
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    flight = flight_of(trace)
    assert (flight.window_s, flight.trigger) == (0.3, "end")
    assert trace.complete and trace.footer["reason"] == "exit"
    assert 0.3e9 <= trace.duration_ns < 0.6e9
    assert trace.run_record["training"]["models"], "the run record is whole"
    # Tags of blocks from before the window still tell what they are for.
    categories = {group.name for group in trace.peak().group_by("category")}
    assert {"parameter", "optimizer state"} <= {name.replace("_", " ") for name in categories}


def test_out_of_memory_that_ends_the_run(tmp_path: Path) -> None:
    status, _, stderr = train(tmp_path, "torch.empty(1 << 50, device='cuda')")
    assert status == 1
    assert "torch.OutOfMemoryError" in stderr
    # The program is gone a moment later: its last file may be the only one.
    assert files(tmp_path) in (["t.gmt"], ["t.gmt", "t.oom-1.gmt"])
    for name in files(tmp_path):
        trace = gpumemtrace.open(tmp_path / name)
        assert trace.oom().failed == 1
        assert trace.duration_ns >= 0.3e9
    assert gpumemtrace.open(tmp_path / "t.gmt").footer["error"]["type"].endswith("OutOfMemoryError")


def test_out_of_memory_that_is_caught(tmp_path: Path) -> None:
    # Somebody who tries out sizes: the first failure of a window is written, at most ten in all.
    end = """
for _ in range(3):
    for _ in range(5):
        try:
            torch.empty(1 << 50, device="cuda")
        except torch.OutOfMemoryError:
            pass
        time.sleep(0.01)
    time.sleep(0.4)
"""
    status, _, stderr = train(tmp_path, end)
    assert status == 0
    assert files(tmp_path) == ["t.gmt", *(f"t.oom-{i}.gmt" for i in (1, 2, 3))]
    assert f"gpumemtrace: out of memory: wrote {tmp_path}/t.oom-1.gmt; next:" in stderr


def test_a_retry_is_no_failure(tmp_path: Path) -> None:
    end = """
total = torch.cuda.mem_get_info()[1]
a = torch.empty(total * 6 // 10, dtype=torch.uint8, device="cuda")
del a
b = torch.empty(total * 7 // 10, dtype=torch.uint8, device="cuda")
time.sleep(0.05)
"""
    status, _, _ = train(tmp_path, end)
    assert status == 0
    assert files(tmp_path) == ["t.gmt"]
    assert len(gpumemtrace.open(tmp_path / "t.gmt").records(Kind.RETRY)["kind"]) == 1


def test_exception(tmp_path: Path) -> None:
    status, _, stderr = train(tmp_path, "raise ValueError('the script is broken')")
    assert status == 1
    assert "ValueError: the script is broken" in stderr
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    assert trace.footer["error"]["type"] == "ValueError"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGABRT"])
def test_signal_that_ends_the_process(tmp_path: Path, name: str) -> None:
    status, _, stderr = train(tmp_path, f"os.kill(os.getpid(), signal.{name})\ntime.sleep(30)")
    assert status == -signal.Signals[name]
    assert files(tmp_path) == ["t.gmt"]
    assert f"gpumemtrace: {name}: wrote {tmp_path}/t.gmt" in stderr
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    assert trace.complete and trace.footer["reason"] == name
    assert flight_of(trace).trigger == name
    assert trace.duration_ns >= 0.3e9


def test_handlers_of_the_program_stay(tmp_path: Path) -> None:
    end = """
def handler(*_):
    print("mine")
    sys.exit(5)

assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
signal.signal(signal.SIGTERM, handler)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30)
"""
    status, stdout, _ = train(tmp_path, end)
    assert (status, stdout) == (5, "mine\n")
    assert gpumemtrace.open(tmp_path / "t.gmt").footer["reason"] == "exit"


def test_ctrl_c_is_pythons(tmp_path: Path) -> None:
    status, _, stderr = train(tmp_path, "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)")
    assert status == -signal.SIGINT
    assert "KeyboardInterrupt" in stderr
    assert gpumemtrace.open(tmp_path / "t.gmt").footer["error"]["type"] == "KeyboardInterrupt"


def test_workers_end_when_they_are_told(tmp_path: Path) -> None:
    # They inherit our handlers, but not the thread that looks at the flags.
    end = """
import multiprocessing
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
worker.start()
time.sleep(0.2)
worker.terminate()
worker.join(20)
print(worker.exitcode)
"""
    status, stdout, _ = train(tmp_path, end)
    assert (status, stdout) == (0, "-15\n")
    assert files(tmp_path) == ["t.gmt"]


def test_sigusr2_asks_for_a_file(tmp_path: Path) -> None:
    Path(tmp_path, "train.py").write_text(TRAINING.format(end="").replace("+ 1:", "+ 60:"))
    arguments = (*RUN, "-o", "t.gmt", "--flight-recorder", "300ms", "train.py")
    process = start(arguments, cwd=tmp_path)
    try:
        wait_for_thread(process.pid)
        process.send_signal(signal.SIGUSR2)
        assert process.stderr is not None
        line = next(text for text in process.stderr if text.startswith("gpumemtrace"))
        assert line.startswith(f"gpumemtrace: SIGUSR2: wrote {tmp_path}/t.sigusr2-1.gmt; next:")
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert files(tmp_path) == ["t.gmt", "t.sigusr2-1.gmt"]


def wait_for_thread(pid: int) -> None:
    """Wait until the drain thread of a process is there."""
    for _ in range(600):
        names = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/comm")]
        if "gpumemtrace\n" in names:
            time.sleep(0.5)  # its first allocations
            return
        time.sleep(0.1)
    raise AssertionError("no recording has begun")


def test_dump(tmp_path: Path) -> None:
    end = """
gpumemtrace.mark("before the dump")
first = gpumemtrace.dump()
gpumemtrace.mark("after the dump")
print(first, gpumemtrace.dump("own.gmt"))
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(gpumemtrace.dump("own.gmt"), caught[0].message)
print(gpumemtrace.dump("own.gmt", force=True))
"""
    status, stdout, stderr = train(tmp_path, end)
    assert status == 0, stderr
    own = tmp_path / "own.gmt"
    assert stdout.splitlines()[:3] == [
        f"{tmp_path}/t.dump-1.gmt {own}",
        "None gpumemtrace: no dump to own.gmt: File exists",
        str(own),
    ]
    assert "before: t.dump-1.gmt, own.gmt" in stderr
    texts = [
        [trace.text(int(i)) for i in trace.records(Kind.MARK)["size_bytes"]]
        for trace in map(gpumemtrace.open, (tmp_path / "t.dump-1.gmt", own))
    ]
    assert texts == [["before the dump"], ["before the dump", "after the dump"]]


def test_dump_without_a_flight_recording_does_nothing(tmp_path: Path) -> None:
    assert gpumemtrace.dump(tmp_path / "x.gmt") is None
    assert files(tmp_path) == []


def test_folder_that_can_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # root may write everywhere, so the answer of the system is replaced.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="Permission denied"):
        check_writable(tmp_path)


def test_views_say_what_it_is(tmp_path: Path) -> None:
    train(tmp_path, "")
    flight = flight_of(gpumemtrace.open(tmp_path / "t.gmt"))
    not_kept = f"{flight.events_before:,} events before it are not kept"

    def told(*arguments: str) -> str:
        done = python("-m", "gpumemtrace", *arguments, cwd=tmp_path)
        return " ".join((done.stdout + done.stderr).split())

    assert not_kept in told("check", "t.gmt")
    assert "Flight recording of the last 300 ms, written at the end of the run: " in told(
        "summary", "t.gmt"
    )
    assert not_kept in told("summary", "t.gmt")
    assert "not kept (on cuda:0 at most " in told("info", "t.gmt")
    summary = json.loads(told("summary", "--json", "t.gmt"))
    assert summary["trace"]["flight_recorder"]["events_before"] == flight.events_before
    told("plot", "t.gmt", "-o", "t.svg")
    assert "events before it are not kept" in " ".join(Path(tmp_path, "t.svg").read_text().split())
    told("report", "t.gmt", "-o", "t.html")
