"""The capture core from Python: what is pushed is in the file, whatever ends the process.

Over 400 lines: every way to end a process is one scenario of the same small program.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpumemtrace import _core
from gpumemtrace.schema import Kind
from gpumemtrace.trace_file import TraceFile


def read_events(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    file = _core.TraceFile(str(path))
    return file.read(0, len(file.chunks))


def read_footer(path: Path) -> dict[str, Any] | None:
    footer = _core.TraceFile(str(path)).footer
    return None if footer is None else json.loads(footer)


def run_child(code: str, *args: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=check,
    )


@pytest.fixture
def session(tmp_path: Path):
    """Start a session by hand; whatever a test leaves running is stopped."""
    path = tmp_path / "trace.gmt"

    def start(**options: Any) -> Path:
        _core.session_start(path, metadata_json='{"run": "test"}', **options)
        return path

    yield start
    _core.session_stop("{}")


def test_what_is_pushed_is_read_back(session):
    path = session(time_resolution_ns=1)
    forward = _core.define_phase(0, "forward")
    block = _core.define_phase(forward, "block 0")
    name = _core.define_string("loss is näh \ud800")
    times = [time.monotonic_ns()]
    for step in range(100):
        assert _core.push_step(step)
        assert _core.push_phase(block, 1)
        assert _core.push_mark(name)
        assert _core.push_tag(0x7F00 + step, 512, 5, name, 3)
        times.append(time.monotonic_ns())
    stats = _core.session_stop('{"reason": "closed"}')
    assert stats["events"] == 400
    assert stats["path"] == str(path)
    assert (stats["dropped"], stats["gaps"], stats["error"]) == (0, 0, None)

    events = read_events(path)
    assert events["kind"].tolist() == [Kind.STEP, Kind.PHASE, Kind.MARK, Kind.TAG] * 100
    assert events["size_bytes"][0::4].tolist() == list(range(100))
    assert set(events["size_bytes"][1::4].tolist()) == {block}
    assert set(events["size_bytes"][2::4].tolist()) == {name}
    assert events["address"][3::4].tolist() == list(range(0x7F00, 0x7F00 + 100))
    assert set(events["stream"][3::4].tolist()) == {5}
    assert set(events["extra"][3::4].tolist()) == {name}
    assert set(events["device"][3::4].tolist()) == {3}
    assert set(events["device"][0::4].tolist()) == {-1}
    assert len(set(events["thread"].tolist())) == 1
    # Each event happened between the clock readings around it.
    slack_ns = 20_000
    at = events["time_ns"] + stats["begin_monotonic_ns"]
    for step in range(100):
        assert times[step] - slack_ns <= at[4 * step]
        assert at[4 * step + 3] <= times[step + 1] + slack_ns

    file = _core.TraceFile(str(path))
    names = [json.loads(text) for text in file.names]
    phases = {i: (parent, text) for part in names for i, parent, text in part["phases"]}
    assert phases[forward] == (0, "forward")
    assert phases[block] == (forward, "block 0")
    assert {i: text for part in names for i, text in part["strings"]}[name] == "loss is näh ?"
    threads = {i: (tid, text) for part in names for i, tid, text in part["threads"]}
    assert threads[int(events["thread"][0])][0] == os.getpid()
    metadata = {}
    for text in file.metadata:
        metadata.update(json.loads(text))
    assert metadata["run"] == "test"
    assert abs(metadata["clock"]["begin_wall_ns"] - time.time_ns()) < 60e9
    footer = read_footer(path)
    assert footer is not None
    assert footer["reason"] == "closed"
    assert footer["totals"]["events"] == 400
    assert footer["totals"]["dropped"] == 0


def test_nothing_is_recorded_without_a_session(session):
    assert not _core.session_active()
    assert not _core.push_step(1)
    path = session()
    assert _core.session_active()
    _core.session_stop("{}")
    assert not _core.push_step(2)
    assert len(read_events(path)["kind"]) == 0


def test_a_second_session_is_refused_and_the_first_goes_on(session, tmp_path):
    path = session()
    with pytest.raises(RuntimeError, match="already recording to"):
        _core.session_start(tmp_path / "other.gmt", metadata_json="{}")
    assert not (tmp_path / "other.gmt").exists()
    assert _core.push_step(1)
    _core.session_stop("{}")
    assert len(read_events(path)["kind"]) == 1


def test_a_file_that_can_not_be_made_is_an_error_that_names_it(tmp_path):
    existing = tmp_path / "existing.gmt"
    existing.write_text("mine")
    with pytest.raises(FileExistsError) as caught:
        _core.session_start(existing, metadata_json="{}")
    assert caught.value.filename == existing
    assert existing.read_text() == "mine"
    with pytest.raises(FileNotFoundError):
        _core.session_start(tmp_path / "no" / "folder.gmt", metadata_json="{}")
    with pytest.raises(OSError, match="No space left on device"):
        _core.session_start("/dev/full", metadata_json="{}", overwrite=True)
    with pytest.raises(ValueError, match="ring_bytes"):
        _core.session_start(tmp_path / "tiny.gmt", metadata_json="{}", ring_bytes=64)
    assert not _core.session_active()


def test_a_lazy_session_without_allocator_events_leaves_no_file(session):
    path = session(lazy=True)
    assert _core.push_step(1)
    time.sleep(0.05)
    stats = _core.session_stop("{}")
    assert not stats["file_created"]
    assert not path.exists()


def test_two_million_events_take_no_memory_but_the_buffers(tmp_path):
    # The documented cap: the ring (8 MiB), a chunk of events (3.5 MiB) and its encoded form.
    code = """
        import os, sys
        from gpumemtrace import _core
        def rss_bytes():
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        def push(count):
            push_tag = _core.push_tag
            for number in range(count):
                push_tag(number * 512, 512, 1, 0, 0)
                if number % 20_000 == 0:
                    import time; time.sleep(0.001)
        push(1000)
        before = rss_bytes()
        _core.session_start(sys.argv[1], metadata_json="{}")
        push(200_000)
        early = rss_bytes()
        push(1_800_000)
        late = rss_bytes()
        stats = _core.session_stop("{}")
        print(early - before, late - early, stats["events"], stats["dropped"])
    """
    out = run_child(code, tmp_path / "trace.gmt").stdout.split()
    start_bytes, growth_bytes, events, dropped = map(int, out)
    assert events + dropped >= 2_000_000
    assert events > 1_000_000  # on a busy machine some may be lost: that is not what is asked here
    assert start_bytes < 32 << 20
    assert growth_bytes < 4 << 20


def test_a_file_that_may_not_grow_costs_one_warning(tmp_path):
    code = """
        import resource, sys, time
        from gpumemtrace import _core
        _core.session_start(sys.argv[1], metadata_json="{}", flush_interval_ms=5)
        assert _core.push_step(0)
        while len(_core.TraceFile(sys.argv[1]).chunks) == 0:
            time.sleep(0.01)
        room = _core.session_stats()["bytes_written"] + 20_000
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        for round in range(200):
            for number in range(500):
                assert _core.push_tag((round * 7919 + number * 104729) % 2**40, number, 0, 0, 0)
            time.sleep(0.001)
        stats = _core.session_stop("{}")
        print(stats["error"], stats["events"], stats["dropped"])
    """
    path = tmp_path / "trace.gmt"
    child = run_child(code, path)
    error, events, dropped = child.stdout.rsplit(maxsplit=2)
    assert error == "File too large"
    assert dropped == "0"
    lines = child.stderr.splitlines()
    assert len(lines) == 1, child.stderr
    assert lines[0].startswith(
        f"gpumemtrace: can't write {path}: File too large; training continues; the trace ends at "
    )
    assert lines[0].endswith(f"({events} events)")
    assert 0 < len(read_events(path)["kind"]) == int(events) < 100_000
    assert read_footer(path) is None


def test_a_deleted_file_is_noticed_a_renamed_one_is_followed(tmp_path):
    code = """
        import os, sys, time
        from gpumemtrace import _core
        path, other = sys.argv[1:]
        _core.session_start(path, metadata_json="{}")
        if other:
            os.rename(path, other)
        else:
            os.unlink(path)
        for number in range(130):
            assert _core.push_step(number)
            time.sleep(0.01)
        print(_core.session_stop("{}")["error"])
    """
    child = run_child(code, tmp_path / "a.gmt", "")
    assert child.stdout == "the file was deleted\n"
    assert child.stderr.count("\n") == 1
    child = run_child(code, tmp_path / "b.gmt", tmp_path / "c.gmt")
    assert child.stdout == "None\n"
    assert child.stderr == ""
    assert len(read_events(tmp_path / "c.gmt")["kind"]) == 130


@pytest.mark.parametrize("left", [0, 100])
def test_a_file_that_is_cut_short_ends_there(tmp_path, left):
    code = """
        import os, sys, time
        from gpumemtrace import _core
        path, left = sys.argv[1], int(sys.argv[2])
        _core.session_start(path, metadata_json="{}")
        for number in range(100):
            assert _core.push_step(number)
            time.sleep(0.005)
            if number == 50:
                os.truncate(path, left)
        print(_core.session_stop("{}")["error"])
    """
    child = run_child(code, tmp_path / "a.gmt", str(left))
    assert child.stdout == "something else has cut the file short\n"
    assert child.stderr.count("\n") == 1
    assert (tmp_path / "a.gmt").stat().st_size == left


# Pushes steps and notes each in a mapped file, so that a killed process leaves behind what it had
# pushed.
PUSHER = """
    import mmap, os, signal, struct, sys, time
    from gpumemtrace import _core
    path, journal_path, end = sys.argv[1:]
    journal_file = open(journal_path, "r+b")
    journal = mmap.mmap(journal_file.fileno(), 0)
    _core.session_start(path, metadata_json="{}")
    deadline = time.monotonic() + 0.45
    number = 0
    print("ready", flush=True)
    while end == "kill" or time.monotonic() < deadline:
        assert _core.push_step(number)
        number += 1
        struct.pack_into("<q", journal, 0, number)
        if number % 16 == 0:
            time.sleep(0.0005)
    if end == "os._exit":
        os._exit(7)
    elif end == "abort":
        os.abort()
    elif end == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
    elif end == "SIGINT":
        os.kill(os.getpid(), signal.SIGINT)
    elif end == "exception":
        raise RuntimeError("on purpose")
    sys.exit(3)
"""


def start_pusher(tmp_path: Path, end: str) -> tuple[subprocess.Popen[str], Path, Path]:
    trace, journal = tmp_path / "trace.gmt", tmp_path / "journal"
    with journal.open("wb") as file:
        file.truncate(4096)
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PUSHER), str(trace), str(journal), end],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child, trace, journal


def check_exact(trace: Path, journal: Path, *, may_have_one_more: bool = False) -> None:
    """What was pushed is read, in order: no event is missing, none is there twice."""
    pushed = int.from_bytes(journal.read_bytes()[:8], "little")
    file = TraceFile(trace)
    steps = file.read()["size_bytes"].tolist()
    assert steps == list(range(len(steps)))
    assert pushed > 0
    assert len(steps) in ((pushed, pushed + 1) if may_have_one_more else (pushed,))
    segment = file.run_record["recovery"]["segment"]
    assert not Path("/dev/shm", segment).exists()


# SIGINT: Python finalizes and then ends itself by the signal, without C exit handlers.
SUDDEN_ENDS = {
    "os._exit": 7,
    "abort": -signal.SIGABRT,
    "SIGTERM": -signal.SIGTERM,
    "SIGINT": -signal.SIGINT,
}


@pytest.mark.parametrize("end", SUDDEN_ENDS)
def test_a_sudden_end_loses_nothing(tmp_path, end):
    child, trace, journal = start_pusher(tmp_path, end)
    child.communicate(timeout=60)
    assert child.returncode == SUDDEN_ENDS[end]
    footer = read_footer(trace)  # any session that begins on this machine may have recovered it
    assert footer is None or footer["reason"] == "recovered"
    check_exact(trace, journal)
    footer = read_footer(trace)
    assert footer is not None
    assert footer["reason"] == "recovered"


@pytest.mark.parametrize("end", ["sys.exit", "exception"])
def test_an_orderly_end_without_a_stop_loses_nothing(tmp_path, end):
    child, trace, journal = start_pusher(tmp_path, end)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == {"sys.exit": 3, "exception": 1}[end]
    assert "gpumemtrace" not in stderr
    footer = read_footer(trace)
    assert footer is not None
    assert footer["reason"] == "exit"
    check_exact(trace, journal)


def test_sigkill_at_any_instant_loses_nothing(tmp_path):
    for repeat in range(10):
        folder = tmp_path / str(repeat)
        folder.mkdir()
        child, trace, journal = start_pusher(folder, "kill")
        time.sleep(random.uniform(0.0, 0.6))
        child.kill()
        child.communicate(timeout=60)
        check_exact(trace, journal, may_have_one_more=True)


def test_a_forked_child_writes_nothing_unless_it_starts_a_session_of_its_own(tmp_path):
    code = """
        import os, resource, sys
        from gpumemtrace import _core
        path, child_path = sys.argv[1:]
        _core.session_start(path, metadata_json="{}")
        name = _core.define_string("from the parent")
        assert _core.push_step(0)
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            assert not _core.session_active()
            assert not _core.push_step(1)
            assert _core.session_stop('{"reason": "child"}')["events"] == 0
            _core.session_start(child_path, metadata_json="{}")
            assert _core.push_mark(name)
            _core.session_stop('{"reason": "child"}')
            os.read(read_end, 1)
            os._exit(0)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        for number in range(1, 131_072):
            _core.push_step(number)
        faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        os.write(write_end, b"x")
        assert os.waitpid(child, 0)[1] == 0
        stats = _core.session_stop('{"reason": "parent"}')
        print(stats["events"], stats["dropped"], faults)
    """
    parent_path, child_path = tmp_path / "parent.gmt", tmp_path / "child.gmt"
    child = run_child(code, parent_path, child_path, check=False)
    assert child.returncode == 0, child.stderr
    events, dropped, faults = map(int, child.stdout.split())
    assert events - (1 if dropped else 0) + dropped == 131_072
    steps = read_events(parent_path)
    assert steps["size_bytes"][steps["kind"] == Kind.STEP][0] == 0
    footer = read_footer(parent_path)
    assert footer is not None
    assert footer["reason"] == "parent"
    mine = read_events(child_path)
    assert mine["kind"].tolist() == [Kind.MARK]
    assert b"from the parent" in b"".join(_core.TraceFile(str(child_path)).names)
    # Shared pages would cost one fault for each of the ring's 2,048.
    assert faults < 500


def test_restarts_with_threads_that_never_stop_pushing(tmp_path):
    code = """
        import sys, threading
        from gpumemtrace import _core
        running = True
        def push():
            number = 0
            while running:
                _core.push_step(number)
                number += 1
        threads = [threading.Thread(target=push) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(50):
            _core.session_start(f"{sys.argv[1]}/{number}.gmt", metadata_json="{}")
            _core.session_stats()
            _core.session_stop("{}")
        running = False
        for thread in threads:
            thread.join()
    """
    run_child(code, tmp_path)
    files = list(tmp_path.glob("*.gmt"))
    assert len(files) == 50
    for file in files:
        footer = read_footer(file)
        assert footer is not None
        # On a busy machine the drain may get no turn in time: the file says how many it missed.
        events = read_events(file)
        lost = int(events["address"][events["kind"] == Kind.GAP].sum())
        assert footer["totals"]["dropped"] == lost
