"""GIVEN long reads, closed pipes and a cold start, THEN the commands behave as tools should."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import recorded

from gpumemtrace.cli.reading import ProgressSource
from gpumemtrace.records import FileSource


def test_help_loads_nothing_heavy():
    program = (
        "import sys; from gpumemtrace.cli.main import build_parser; build_parser().format_help();"
        "print(sorted({'numpy', 'matplotlib', 'rich', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_progress_is_shown_on_stderr_and_changes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich: as on a terminal
    path = tmp_path / "a.gmt"
    recorded.load("gpt2")[0].save(path)
    source = ProgressSource(FileSource(path), show_after_s=0)
    watched = [batch["time_ns"] for batch in source.batches()]
    plain = [batch["time_ns"] for batch in FileSource(path).batches()]
    np.testing.assert_array_equal(np.concatenate(watched), np.concatenate(plain))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Reading" in captured.err


def test_progress_ends_when_the_reader_stops_early(tmp_path, capsys):
    path = tmp_path / "a.gmt"
    recorded.load("gpt2")[0].save(path)
    batches = ProgressSource(FileSource(path), show_after_s=0).batches()
    next(batches)
    batches.close()
    list(ProgressSource(FileSource(path)).batches())  # another one may start: the bar is gone


def test_a_closed_pipe_is_no_error(tmp_path):
    path = tmp_path / "a.gmt"
    recorded.load("gpt2")[0].save(path)
    summary = f"{sys.executable} -m gpumemtrace summary --json {path}"
    command = f"{summary} | head -c 10; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, '{\n  "trace', "")


def test_no_color_and_piped_output_are_plain(tmp_path):
    path = tmp_path / "a.gmt"
    recorded.load("gpt2")[0].save(path)
    done = subprocess.run(
        [sys.executable, "-m", "gpumemtrace", "summary", path], capture_output=True, check=True
    )
    assert b"\x1b" not in done.stdout
    assert "─" not in done.stdout.decode()
    assert "allocated    3.131 GiB  backward, step 1" in done.stdout.decode()


def test_closed_streams_are_no_error(tmp_path):
    path = tmp_path / "a.gmt"
    recorded.load("gpt2")[0].save(path)
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        command = f"{sys.executable} -m gpumemtrace check {path} {closed}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert ("good" in done.stdout) == (">&- " not in f" {closed} ".replace("2>&- ", ""))


def test_a_full_disk_is_one_line(tmp_path):
    path = tmp_path / "a.gmt"
    recorded.load("gpt2")[0].save(path)
    for arguments, what in (
        (f"summary {path} > /dev/full", "stdout"),
        (f"export {path} --to csv -f -o /dev/full", "/dev/full"),
    ):
        command = f"{sys.executable} -m gpumemtrace {arguments}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr == f"gpumemtrace: can't write {what}: No space left on device\n".replace(
            "write stdout", "write to stdout"
        )
