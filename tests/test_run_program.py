"""`gpumemtrace run` runs a program as `python` does: none of these imports torch."""

from __future__ import annotations

import re
import signal
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from launch import RUN, python, start

pytestmark = pytest.mark.simgpu

SHOW = """
import sys, __main__
print(__name__, sys.argv, sys.path[0], sys.modules["__main__"] is __main__)
print(sorted(k for k in globals() if k not in ("__main__", "sys", "__warningregistry__")))
print(globals().get("__file__"), type(__loader__).__name__, __doc__)
spec = __spec__
print(spec and spec.name, __package__)
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, source: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    return write


def both(arguments: Sequence[str], cwd: Path, **options: object) -> tuple[object, object]:
    """What an untraced and a traced run end with."""
    plain = python(*arguments, cwd=cwd, check=False, **options)
    traced = python(*RUN, "-q", *arguments, cwd=cwd, check=False, **options)
    return (plain.returncode, plain.stdout, plain.stderr), (
        traced.returncode,
        traced.stdout,
        traced.stderr,
    )


def test_a_script_sees_itself_as_main(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    write("sub/show.py", SHOW)
    plain, traced = both(["sub/show.py", "-q", "--", "--debug", "x"], tmp_path)
    assert traced == plain


def test_a_module(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    write("package/__init__.py", "")
    write("package/__main__.py", SHOW)
    write("package/inner.py", SHOW)
    for name in ("package", "package.inner"):
        plain, traced = both(["-m", name, "-m", "x"], tmp_path)
        assert traced == plain


def test_code(tmp_path: Path) -> None:
    plain, traced = both(["-c", SHOW, "-c"], tmp_path)
    assert traced == plain


def test_a_folder_with_a_main(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    write("app/__main__.py", SHOW)
    plain, traced = both(["app", "x"], tmp_path)
    assert traced == plain


ENDINGS = {
    "exit": "import sys; print('out'); sys.exit(7)",
    "message": "import sys; sys.exit('a message')",
    "none": "import sys; sys.exit()",
    "exception": "def f():\n    raise ValueError('x')\n\nf()",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError(1) from e",
    "syntax": "print('not reached'\n",
    "hook": "import sys\nsys.excepthook = lambda *a: print(a[0], a[2].tb_lineno)\n1 / 0",
    "ours": "import gpumemtrace\nraise gpumemtrace.GpuMemTraceError('of the program')",
    "at exit": "import atexit\natexit.register(print, 'bye')\nraise OSError(2, 'gone', 'file')",
    "os._exit": "import os, sys; print('x', flush=True); os._exit(3)",
    "group": "raise ExceptionGroup('g', [ValueError(1)])",
    "interrupt": "def f():\n    raise KeyboardInterrupt\n\nf()",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "future": "def f(x: undefined): pass",
}


@pytest.mark.parametrize("name", ENDINGS)
def test_it_ends_as_without_us(
    name: str, write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write("program.py", ENDINGS[name])
    plain, traced = both(["program.py"], tmp_path)
    assert traced == plain
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.py"]


def test_a_module_that_fails(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    write("broken.py", "1 / 0\n")
    plain, traced = both(["-m", "broken"], tmp_path)
    assert traced == plain
    plain, traced = both(["-m", "not_there"], tmp_path)
    assert traced == plain


def test_ctrl_c_ends_it_with_the_signal(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    write("wait.py", "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    results = []
    for launcher in ((), (*RUN, "-q")):
        process = start([*launcher, "wait.py"], cwd=tmp_path)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.5)  # past the line that printed: both tracebacks name the same one
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        results.append((process.returncode, stderr))
    assert results[1] == results[0]
    assert results[0][0] == -signal.SIGINT


def test_spawned_processes_find_main(write: Callable[[str, str], Path], tmp_path: Path) -> None:
    write(
        "spawn.py",
        """
        import multiprocessing, pickle
        class Thing:
            pass
        def work(thing):
            return type(thing).__module__
        if __name__ == "__main__":
            print(type(pickle.loads(pickle.dumps(Thing()))) is Thing)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [Thing()]))
        """,
    )
    plain, traced = both(["spawn.py"], tmp_path)
    assert traced == plain


def test_mistakes_are_told_before_anything_runs(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write("program.py", "print('ran')")
    write("there.gmt", "")
    for arguments, text in (
        (["missing.py"], "can't open missing.py: No such file or directory"),
        (["-o", "there.gmt", "program.py"], "there.gmt is there already: choose another path"),
        (["-o", "no/such.gmt", "program.py"], "no is not a folder"),
        (["--ring-bytes", "3", "program.py"], "ring_bytes is between"),
        (["--max-disk", "2 GBit", "program.py"], "'2 GBit' is not a size"),
    ):
        done = python(*RUN, *arguments, cwd=tmp_path, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(rf"gpumemtrace: .*{re.escape(text)}.*\n", done.stderr), done.stderr


def test_without_a_driver_it_says_what_to_type(
    write: Callable[[str, str], Path], tmp_path: Path
) -> None:
    write("program.py", "print('ran')")
    done = python(
        *RUN,
        "program.py",
        cwd=tmp_path,
        check=False,
        env={"LD_PRELOAD": "", "LD_LIBRARY_PATH": ""},
    )
    if done.returncode == 0:
        pytest.skip("this machine has an NVIDIA driver")
    assert (done.returncode, done.stdout) == (1, "")
    assert "gpumemtrace simulate" in done.stderr
    assert done.stderr.count("\n") == 1


NOTHING = "gpumemtrace: nothing was recorded in this process: it "


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("print('done')", 0, "did not import torch"),
        ("import torch; torch.ones(3); raise SystemExit(3)", 3, "allocated no GPU memory"),
        ("import torch; torch.ones(3, device='cuda')", 0, ""),
        ("import os; os._exit(0)", 0, ""),
        ("import os; os.fork() or exit(0); os.wait()", 0, "did not import torch"),
    ],
)
def test_a_run_without_gpu_memory_says_so(
    tmp_path: Path, code: str, status: int, told: str
) -> None:
    ran = python(*RUN, "-c", code, cwd=tmp_path, check=False)
    assert ran.returncode == status
    lines = [line for line in ran.stderr.splitlines() if line.startswith(NOTHING)]
    assert lines == ([NOTHING + told] if told else [])
    quiet = python(*RUN, "-q", "-c", code, cwd=tmp_path, check=False)
    assert (quiet.returncode, quiet.stderr) == (status, "")


def test_a_script_that_is_not_there_is_all_that_is_told(tmp_path: Path) -> None:
    ran = python(*RUN, "absent.py", cwd=tmp_path, check=False)
    assert ran.returncode != 0
    assert len(ran.stderr.splitlines()) == 1
