"""Recording without a change to the program: by `run`, by the environment, and in children."""

from __future__ import annotations

import re
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from launch import RUN, python, start

import gpumemtrace
from gpumemtrace.cli.main import main
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace

pytestmark = pytest.mark.simgpu

TRAIN = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(3):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

EXHAUST = """
import torch
held = [torch.empty(20 << 30, dtype=torch.uint8, device="cuda") for _ in range(9)]
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, source: str) -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(source))
        return path

    return write


def traces_in(folder: Path) -> list[Trace]:
    return [gpumemtrace.open(path) for path in sorted(folder.glob("*.gmt"))]


def content(trace: Trace) -> list[tuple[int, ...]]:
    """What two recordings of the same program have in common: all but times and addresses."""
    columns = trace.columns("kind", "size_bytes", "phase", "step")
    return list(zip(*(column.tolist() for column in columns.values()), strict=True))


def test_the_environment_gives_the_same_file_as_run(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write("train.py", TRAIN)
    by_run = python(*RUN, "train.py", cwd=tmp_path)
    by_variable = python("train.py", cwd=tmp_path, env={"GPUMEMTRACE": "1"})
    first, second = traces_in(tmp_path)
    assert content(first) == content(second)
    assert len(first.steps) == 3
    assert first.complete
    for trace in (first, second):
        name = Path(trace.path or "").name
        assert re.fullmatch(r"gpumemtrace-train\.0\.\d+\.gmt", name)
        assert str(trace.run_record["pid"]) in name
    for done in (by_run, by_variable):
        assert done.stdout == ""
        assert re.fullmatch(
            r"gpumemtrace: wrote (\S+) \([\d,]+ records, \d+\.\d KiB\); "
            r"next: gpumemtrace summary \1\n",
            done.stderr,
        )


@pytest.mark.alone
def test_switched_off_it_costs_nothing(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    write("nothing.py", "import sys\nprint([m for m in sys.modules if 'gpumemtrace' in m])")
    for value in ("", "0"):
        done = python("nothing.py", cwd=tmp_path, env={"GPUMEMTRACE": value})
        assert "autostart" not in done.stdout
    write(
        "cheap.py",
        """
        import sys, time
        begin = time.perf_counter()
        import gpumemtrace
        took = time.perf_counter() - begin
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        print(took)
        """,
    )
    assert min(float(python("cheap.py", cwd=tmp_path).stdout) for _ in range(3)) < 0.05


def test_a_wrong_variable_is_one_line_and_the_program_runs(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write("nothing.py", "print('ran')")
    env = {"GPUMEMTRACE": "1", "GPUMEMTRACE_RING_BYTES": "many"}
    done = python("nothing.py", cwd=tmp_path, env=env)
    assert done.stdout == "ran\n"
    assert done.stderr.startswith("gpumemtrace: not recording: GPUMEMTRACE_RING_BYTES=many: ")
    assert done.stderr.count("\n") == 1


def test_without_cuda_there_is_no_file(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    write("cpu.py", "import torch, gpumemtrace\ntorch.ones(3)\ngpumemtrace.mark('x')")
    done = python(*RUN, "cpu.py", cwd=tmp_path)
    assert done.stderr.endswith("it allocated no GPU memory\n")
    assert traces_in(tmp_path) == []


def test_it_begins_before_a_library_that_allocates_at_import(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write("greedy.py", "import torch\nheld = torch.zeros(1, device='cuda')")
    write("program.py", "import greedy\nimport torch\nx = torch.zeros(1000, device='cuda')")
    python(*RUN, "-q", "program.py", cwd=tmp_path)
    (trace,) = traces_in(tmp_path)
    assert trace.size_bytes.tolist()[:2] == [4, 4000]


def test_an_install_in_the_script_is_the_launchers_session(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write(
        "program.py",
        """
        import torch, gpumemtrace
        with gpumemtrace.install("mine.gmt"):
            x = torch.ones(1000, device="cuda")
        """,
    )
    plain = python("program.py", cwd=tmp_path)
    assert plain.stderr == ""
    assert [Path(t.path or "").name for t in traces_in(tmp_path)] == ["mine.gmt"]
    traced = python(*RUN, "program.py", cwd=tmp_path)
    assert "recording already" in traced.stderr
    assert "wrote gpumemtrace-program.0." in traced.stderr
    assert len(traces_in(tmp_path)) == 2


def test_closed_outputs_change_neither_the_program_nor_the_trace(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write(
        "train.py",
        TRAIN + "\nimport os\nfor fd in (1, 2):\n    try: os.write(fd, b'x' * 999)\n"
        "    except OSError: pass\n",
    )
    closing = "import os, sys; os.close(1); os.close(2); os.execv(sys.executable, sys.argv[1:])"
    done = python("-c", closing, sys.executable, *RUN, "train.py", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("", "")
    (trace,) = traces_in(tmp_path)
    assert trace.complete
    assert not trace.problems


def test_the_last_line_tells_of_a_file_that_is_gone_or_cut_short(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write("train.py", TRAIN + "\nimport os\nos.remove('a.gmt')\n")
    done = python(*RUN, "-o", "a.gmt", "train.py", cwd=tmp_path)
    assert "gpumemtrace: nothing is at a.gmt any more: the trace was moved or" in done.stderr
    assert "wrote" not in done.stderr
    full = "import os, resource, time\ntime.sleep(0.5)\nsize = os.stat('b.gmt').st_size\n"
    full += "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))\n"
    write("train.py", TRAIN + full + TRAIN)
    done = python(*RUN, "-o", "b.gmt", "train.py", cwd=tmp_path)
    assert "wrote only the beginning of the run (File too large) to b.gmt (" in done.stderr


def test_running_out_of_memory_stays_the_programs_error(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write("oom.py", EXHAUST)
    plain = python("oom.py", cwd=tmp_path, check=False)
    traced = python(*RUN, "-q", "oom.py", cwd=tmp_path, check=False)
    assert plain.returncode == traced.returncode == 1
    assert "torch.OutOfMemoryError: CUDA out of memory." in plain.stderr

    def timeless(text: str) -> str:
        return re.sub(r"(\[[A-Z]\d{4}) [\d:.]+|process \d+", r"\1", text, flags=re.IGNORECASE)

    assert timeless(traced.stderr) == timeless(plain.stderr)
    (trace,) = traces_in(tmp_path)
    failed = trace.marks.of(Kind.ALLOC_FAILED)
    assert failed["size_bytes"].tolist() == [20 << 30]


def test_four_processes_four_files_and_a_rerun_adds_four(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write("rank.py", EXHAUST)

    def run_four() -> None:
        ranks = [
            start([*RUN, "-q", "rank.py"], cwd=tmp_path, env={"RANK": str(r), "WORLD_SIZE": "4"})
            for r in range(4)
        ]
        assert [process.wait(120) for process in ranks] == [1, 1, 1, 1]

    run_four()
    first = {path: path.read_bytes() for path in tmp_path.glob("*.gmt")}
    assert len(first) == 4
    records = [gpumemtrace.open(path).run_record for path in first]
    assert sorted(record["rank"] for record in records) == [0, 1, 2, 3]
    assert {record["world_size"] for record in records} == {4}
    for path, record in zip(first, records, strict=True):
        assert f".{record['rank']}.{record['pid']}." in path.name
    run_four()
    assert len(list(tmp_path.glob("*.gmt"))) == 8
    assert {path: path.read_bytes() for path in first} == first


CHILDREN = """
import multiprocessing, os, subprocess, sys

def work():
    import torch
    torch.ones(1000, device="cuda")

def idle():
    import torch
    torch.ones(3)

if __name__ == "__main__":
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        for target in (work, idle):
            process = context.Process(target=target)
            process.start()
            process.join()
            assert process.exitcode == 0
            print(method, target.__name__, process.pid, flush=True)
    code = "import os, torch; torch.ones(5, device='cuda'); print('subprocess work', os.getpid())"
    subprocess.run([sys.executable, "-c", code], check=True)
    if len(sys.argv) > 1:
        import torch
        torch.ones(5, device="cuda")
"""


def test_each_process_that_used_cuda_writes_one_file(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    # C101, C108: by fork, by spawn and as a program of their own; no file where CUDA was not used.
    # The parent imports torch after the fork; then before it, without bringing up CUDA.
    write("late.py", CHILDREN)
    write("early.py", "import torch\n" + CHILDREN)
    for script in ("late.py", "early.py"):
        folder = tmp_path / script.removesuffix(".py")
        folder.mkdir()
        done = python(*RUN, "-q", "-o", f"{folder.name}/", script, cwd=tmp_path)
        assert done.stderr == ""
        pids = {line.split()[-1] for line in done.stdout.splitlines() if "work" in line}
        assert len(pids) == 3
        traces = traces_in(folder)
        assert {str(trace.run_record["pid"]) for trace in traces} == pids
        assert all(trace.complete for trace in traces)


def test_the_plain_name_is_for_the_process_that_was_asked(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write("children.py", CHILDREN)
    python(*RUN, "-q", "-o", "out.gmt", "children.py", "too", cwd=tmp_path)
    names = sorted(path.name for path in tmp_path.glob("*.gmt"))
    assert names[-1] == "out.gmt"
    assert all(re.fullmatch(r"out\.0\.\d+\.gmt", name) for name in names[:-1])
    assert len(names) == 4


def test_torchrun_gives_one_file_per_rank(
    write: Callable[[str, str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # C101. The launcher itself, which uses no CUDA, writes none.
    write(
        "rank.py",
        """
        import os, torch
        torch.distributed.init_process_group("gloo")
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.ones(1000 + int(os.environ["RANK"]), device=device)
        ranks = torch.ones(1)
        torch.distributed.all_reduce(ranks)
        assert int(ranks) == 2
        torch.distributed.destroy_process_group()
        """,
    )
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    python(*RUN, "-q", *launcher, "rank.py", cwd=tmp_path, devices=2)
    traces = traces_in(tmp_path)
    assert len(traces) == 2 and all(trace.complete for trace in traces)
    found = {trace.run_record["rank"]: trace for trace in traces}
    assert [trace.devices for _, trace in sorted(found.items())] == [(0,), (1,)]
    for rank, trace in found.items():
        assert trace.size_bytes.tolist()[0] == 4000 + 4 * rank
        name = Path(trace.path or "").name
        assert name == f"gpumemtrace-rank.{rank}.{trace.run_record['pid']}.gmt"
        # C109: of the second card as much is told as of the first.
        assert main(["summary", str(trace.path)]) == 0
        told = capsys.readouterr().out
        assert f"cuda:{rank}" in told and f"cuda:{1 - rank}" not in told
        assert "MiB" in told


def test_data_loader_workers_write_nothing(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    # C108.
    write(
        "loader.py",
        """
        import torch
        from torch.utils.data import DataLoader
        if __name__ == "__main__":
            torch.ones(5, device="cuda")
            for method in ("fork", "spawn"):
                for x in DataLoader(range(4), num_workers=2, multiprocessing_context=method):
                    x.cuda()
        """,
    )
    python(*RUN, "-q", "loader.py", cwd=tmp_path)
    (trace,) = traces_in(tmp_path)
    assert trace.complete
    assert len(trace) == 18


DEATHS = {
    "os._exit": ("os._exit(0)", 0),
    "sigterm": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)", -signal.SIGTERM),
    "sigint": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", -signal.SIGINT),
    "sigkill": ("os.kill(os.getpid(), signal.SIGKILL); time.sleep(9)", -signal.SIGKILL),
    "abort": ("os.abort()", -signal.SIGABRT),
    "end": ("", 0),
}


@pytest.mark.parametrize("name", DEATHS)
def test_what_was_recorded_survives(
    name: str, write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    # C10, C11: nothing waits for an end that may not come; the compact file is the only one.
    death, status = DEATHS[name]
    write(
        "die.py",
        f"""
        import os, signal, time, torch
        held = [torch.empty(1000 + i, dtype=torch.uint8, device="cuda") for i in range(100)]
        time.sleep(0.5)  # longer than the flush interval
        {death}
        """,
    )
    done = python(*RUN, "-q", "die.py", cwd=tmp_path, check=False)
    assert done.returncode == status
    (trace,) = traces_in(tmp_path)
    sizes = set(trace.size_bytes.tolist())
    assert {1000 + i for i in range(100)} <= sizes
    assert trace.complete == (name in ("sigint", "end"))
