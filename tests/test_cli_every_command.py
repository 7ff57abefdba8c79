"""What holds for every command: help by example, quiet and JSON modes, one-line errors."""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from every_command import FILES, MAKES_FILES, NAMES, NO_TRACE, prepare
from synthetic import MIB, TraceBuilder

from gpumemtrace.cli.main import build_parser, main

# check and info say what is wrong with a file in their exit status.
VERDICTS = {3, 4, 5}
QUESTIONS = [name for name in FILES if name not in MAKES_FILES]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    prepare(folder)
    return folder


@pytest.fixture
def here(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(prepared)
    return prepared


def parser_of(name: str) -> argparse.ArgumentParser:
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices[name]
    raise AssertionError


def options_of(name: str) -> dict[str, argparse.Action]:
    return {text: a for a in parser_of(name)._actions for text in a.option_strings}


def test_every_command_is_in_these_tests() -> None:
    assert set(FILES) | NO_TRACE == set(NAMES)


def test_the_whole_help_is_one_screen_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = build_parser().format_help().splitlines()
    assert len(lines) <= 42
    assert max(map(len, lines)) <= 80
    titles = [line for line in lines if re.fullmatch(r"[a-z ]+:", line)]
    assert titles == [
        "record:",
        "look:",
        "compare and check:",
        "exchange:",
        "options:",
        "examples:",
    ]
    for name in NAMES:
        assert sum(line.startswith(f"  {name} ") for line in lines) == 1, name


@pytest.mark.parametrize("name", NAMES)
def test_what_a_command_does_is_wrapped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    description = parser_of(name).description
    assert description is not None
    lines = parser_of(name).format_help().split("positional arguments:")[0].splitlines()
    assert " ".join(description.split()) in " ".join(lines)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", NAMES)
def test_the_help_teaches_by_examples_that_parse(name: str) -> None:
    text = parser_of(name).format_help()
    examples = re.findall(rf"^  (?:eval \"\$\()?(gpumemtrace {name}\b.*)$", text, re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        command = re.split(r" {2,}| \|+ |\)\"| > ", example)[0]
        build_parser().parse_args(shlex.split(command)[1:])


def test_the_same_option_has_the_same_words() -> None:
    words: dict[str, set[tuple[str | None, str]]] = {}
    for name in NAMES:
        for text, action in options_of(name).items():
            short = action.option_strings[0]
            words.setdefault(text, set()).add((str(action.metavar), short))
    shared = ("--device", "--steps", "--step", "--json", "--output", "--force", "--quiet", "--top")
    assert {option: len(words[option]) for option in shared} == dict.fromkeys(shared, 1)
    for name in FILES:
        assert {"-q", "--quiet", "--debug"} <= options_of(name).keys(), name
        assert ("--json" in options_of(name)) == (name in QUESTIONS), name
        assert ({"-o", "-f"} <= options_of(name).keys()) == (name in MAKES_FILES), name


@pytest.mark.parametrize("name", QUESTIONS)
def test_json_is_one_object_and_nothing_else(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([name, *FILES[name], "--json"])
    captured = capsys.readouterr()
    assert isinstance(json.loads(captured.out), dict)
    assert captured.err == ""


@pytest.mark.parametrize("name", FILES)
def test_quiet_leaves_results_alone(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main([name, *FILES[name]])
    talkative = capsys.readouterr()
    assert main([name, *FILES[name], "-q"]) == status
    quiet = capsys.readouterr()
    assert quiet.err == talkative.err == ""
    assert not re.search(r"Next:|Wrote|^ *gpumemtrace ", quiet.out, re.MULTILINE)
    assert (quiet.out == "") == (name in MAKES_FILES)


@pytest.mark.parametrize("name", ["summary", "phases", "times", "compare", "growth"])
def test_names_with_brackets_are_shown_as_they_are(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = TraceBuilder()
    for step in range(12):
        builder.phase("[red]keep").alloc((1 << 40) + step * MIB, MIB).phase("").step(step + 1)
    path = tmp_path / "run.gmt"
    builder.trace().save(path)
    sides = ["--steps-a", "0:4", "--steps-b", "4:12"] if name == "compare" else []
    main([name, str(path), *sides])
    assert "[red]keep" in capsys.readouterr().out


@pytest.mark.parametrize("name", [n for n in FILES if n not in ("compare", "budget")])
def test_the_command_to_type_next_works(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([name, *FILES[name]])
    for command in re.findall(r"^(?:Next:)? +gpumemtrace (.*)", capsys.readouterr().out, re.M):
        arguments = shlex.split(command)
        arguments += ["-f"] if arguments[0] in MAKES_FILES else []
        assert main(arguments) == 0, command


@pytest.mark.parametrize("kind", ["missing", "a folder", "empty", "text", "binary"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_is_one_line(
    name: str, kind: str, prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.gmt"
    if kind == "a folder":
        bad.mkdir()
    elif kind != "missing":
        contents = {"empty": b"", "text": b"hello\n" * 9, "binary": bytes(range(256))}
        bad.write_bytes(contents[kind])
    arguments = [str(bad), *FILES[name][1:]]
    if name in MAKES_FILES:
        arguments[-1] = str(tmp_path / arguments[-1])
    arguments = [a.replace("rules.toml", str(prepared / "rules.toml")) for a in arguments]
    status = main([name, *arguments])
    captured = capsys.readouterr()
    if name in ("check", "info") and status in VERDICTS:
        assert captured.err == ""
        assert str(bad) in captured.out
    else:
        assert status == (2 if name == "budget" else 1), captured
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert captured.err.startswith("gpumemtrace: ")
        assert str(bad) in captured.err
        assert "internal error" not in captured.err
    assert [p.name for p in tmp_path.iterdir()] == ([] if kind == "missing" else ["bad.gmt"])


@pytest.mark.parametrize("name", [name for name in FILES if name != "import"])
def test_a_trace_that_was_cut_short_is_read_as_far_as_it_goes(
    name: str, here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (here / "train.gmt").read_bytes()
    for length in (60, len(whole) // 2):
        cut = tmp_path / "cut.gmt"
        cut.write_bytes(whole[:length])
        status = main([name, str(cut), *FILES[name][1:]])
        captured = capsys.readouterr()
        assert "internal error" not in captured.err
        assert status in (VERDICTS if name in ("check", "info") else {0, 1, 2})
        # What is missing, and then perhaps what can't be told without it: a line each.
        lines = captured.err.splitlines()
        assert len(lines) <= 2
        assert all(line.startswith((f"{cut}: ", "gpumemtrace: ")) for line in lines)
        assert status != 1 or lines[-1].startswith("gpumemtrace: ")


@pytest.mark.parametrize("name", ["check", "info"])
@pytest.mark.parametrize("contents", [b"", b"hello\n" * 9])
def test_a_verdict_about_no_trace_is_json_too(
    name: str, contents: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.gmt"
    bad.write_bytes(contents)
    assert main([name, "--json", str(bad)]) in VERDICTS
    assert json.loads(capsys.readouterr().out)["verdict"] in ("empty", "corrupt")


def on_a_terminal(arguments: list[str], *, cwd: Path, **environment: str) -> str:
    """What a terminal is sent."""
    controller, terminal = pty.openpty()
    inherited = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    env = inherited | {"TERM": "xterm-256color", "COLUMNS": "100"} | environment
    command = [sys.executable, "-m", "gpumemtrace", *arguments]
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        sent = b""
        while True:
            try:
                piece = os.read(controller, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            sent += piece
    os.close(controller)
    assert process.returncode in (0, 1)
    return sent.decode()


def test_colour_on_a_terminal_and_not_under_no_color(tmp_path: Path) -> None:
    prepare(tmp_path)
    (tmp_path / "rules.toml").write_text('[[limit]]\nmax = "1 KiB"\n')
    arguments = ["budget", "train.gmt", "rules.toml"]
    colour = re.compile(r"\x1b\[[\d;]*(?:3[0-8]|9[0-7]|4[0-8])[\d;]*m")
    assert colour.search(on_a_terminal(arguments, cwd=tmp_path))
    assert not colour.search(on_a_terminal(arguments, cwd=tmp_path, NO_COLOR="1"))
    piped = subprocess.run(
        [sys.executable, "-m", "gpumemtrace", *arguments],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert b"\x1b" not in piped.stdout + piped.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_a_script_that_the_shell_takes(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in NAMES:
        assert name in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_completion_in_bash_knows_commands_and_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    main(["completion", "bash"])
    (tmp_path / "script").write_text(capsys.readouterr().out)

    def complete(*words: str) -> list[str]:
        program = f"""
source {tmp_path}/script
COMP_WORDS=({shlex.join(words)} ""); COMP_WORDS[${{#COMP_WORDS[@]}}-1]={shlex.quote(words[-1])}
unset "COMP_WORDS[${{#COMP_WORDS[@]}}-1]"; COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_gpumemtrace
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
        done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert complete("gpumemtrace", "pe") == ["peak"]
    assert complete("gpumemtrace", "peak", "--st") == ["--step"]


def test_without_shtab_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gpumemtrace.cli.completion.find_spec", lambda name: None)
    assert main(["completion", "bash"]) == 1
    assert "pip install 'gpumemtrace[completion]'" in capsys.readouterr().err
