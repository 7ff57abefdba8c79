"""GIVEN a command that fails, WHEN it is run, THEN the user sees one line and an exit status."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from gpumemtrace.cli import main as cli
from gpumemtrace.cli.any_order import AnyOrderParser
from gpumemtrace.errors import GpuMemTraceError


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., int]], None]:
    def install(run: Callable[..., int]) -> None:
        def add_parser(subparsers: argparse._SubParsersAction) -> argparse.ArgumentParser:
            return subparsers.add_parser("probe", help="a command for this test")

        command = SimpleNamespace(add_parser=add_parser, run=run)
        monkeypatch.setattr(cli, "GROUPS", {"for this test": (command,)})

    return install


def test_exit_status_is_the_commands_own(command):
    command(lambda args: 4)
    assert cli.main(["probe"]) == 4


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            GpuMemTraceError("a.gmt: not a trace;\n  type X"),
            "gpumemtrace: a.gmt: not a trace; type X\n",
        ),
        (
            FileNotFoundError(2, "No such file or directory", "b.gmt"),
            "gpumemtrace: b.gmt: No such file or directory\n",
        ),
        (KeyError("x"), "gpumemtrace: internal error: KeyError: 'x' (--debug shows where)\n"),
    ],
)
def test_an_error_is_one_line(command, capsys, error, line):
    def fail(args: argparse.Namespace) -> int:
        raise error

    command(fail)
    assert cli.main(["probe"]) == 1
    captured = capsys.readouterr()
    assert captured.err == line
    assert captured.out == ""


@pytest.mark.parametrize("argv", [["probe", "--debug"], ["--debug", "probe"]])
def test_debug_shows_the_traceback(command, capsys, argv):
    def fail(args: argparse.Namespace) -> int:
        raise GpuMemTraceError("broken")

    command(fail)
    assert cli.main(argv) == 1
    assert "Traceback" in capsys.readouterr().err


def test_interrupted(command):
    def interrupt(args: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    command(interrupt)
    assert cli.main(["probe"]) == 130


def test_without_a_command_the_help_teaches_by_example(capsys):
    assert cli.main([]) == 2
    assert "gpumemtrace demo" in capsys.readouterr().err


def test_version_through_python_dash_m():
    output = subprocess.run(
        [sys.executable, "-m", "gpumemtrace", "--version"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.startswith("gpumemtrace 0.")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("a b --json r", {"files": ["a", "b"], "rules": "r", "json": True, "top": 0}),
        ("a --top 3 b --top=4 r", {"files": ["a", "b"], "rules": "r", "json": False, "top": 4}),
        ("a -t 3 r --json", {"files": ["a"], "rules": "r", "json": True, "top": 3}),
        ("--json a -- --top r", {"files": ["a", "--top"], "rules": "r", "json": True, "top": 0}),
    ],
)
def test_options_may_stand_anywhere(words, found):
    parser = AnyOrderParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("rules")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--top", "-t", type=int, default=0)
    assert vars(parser.parse_args(words.split())) == found


def test_the_line_of_a_script_keeps_its_order():
    parser = AnyOrderParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("script", nargs=argparse.REMAINDER)
    assert parser.parse_args(["t.py", "--json"]).script == ["t.py", "--json"]
