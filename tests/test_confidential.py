"""GIVEN a trace with paths in it, WHEN a confidential copy is made, THEN no path is left in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from launch import RUN, python
from simgpu import run_simulated
from synthetic import MIB, TraceBuilder

import gpumemtrace
from gpumemtrace.cli.main import main
from gpumemtrace.confidential import (
    file_without_folders,
    record_without_paths,
    text_without_folders,
)
from gpumemtrace.schema import Kind

# Both must pass: the rule in Python, and its native twin.
FILES = {
    "/srv/me/secret/train.py": "train.py",
    "train.py": "train.py",
    "/srv/me/env/lib/python3.11/site-packages/torch/nn/modules/linear.py": (
        "torch/nn/modules/linear.py"
    ),
    "/usr/lib/python3/dist-packages/numpy/core.py": "numpy/core.py",
    "/a/site-packages/secret/dist-packages/numpy/core.py": "numpy/core.py",
    "/a/dist-packages/secret/site-packages/numpy/core.py": "numpy/core.py",
    "/srv/me/secret/torch/nn/modules/linear.py": "torch/linear.py",  # built from source
    "/tmp/torchinductor_me/ab/cab.py": "torchinductor/cab.py",
    "/srv/me/src/gpumemtrace/capture/run.py": "gpumemtrace/capture/run.py",
    "/srv/gpumemtrace/capture/secret/run.py": "run.py",
    "<frozen runpy>": "<frozen runpy>",
    "<string>": "<string>",
    "": "",
    "/": "",
}


def test_of_a_file_the_name_is_kept_and_whose_it_is() -> None:
    assert {file: file_without_folders(file) for file in FILES} == FILES


@pytest.mark.simgpu
def test_a_recording_keeps_the_same_of_a_file() -> None:
    code = f"""
import gpumemtrace.capture.allocator as a
a.ensure_installed()
from gpumemtrace import _torch_hook
files = {FILES!r}
assert {{file: _torch_hook.without_folders(file) for file in files}} == files

import itertools
from gpumemtrace.confidential import file_without_folders
parts = ["", "me", "site-packages", "dist-packages", "torch", "torchinductor_me"]
parts += ["gpumemtrace", "cli"]
for folders in itertools.product(parts, repeat=4):
    file = "/".join([*folders, "x.py"])
    assert _torch_hook.without_folders(file) == file_without_folders(file), file
"""
    run_simulated(code)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("saved /srv/me/secret/1.pt", "saved 1.pt"),
        ("~/secret/1.pt, /a//b/2.pt and '/x/y/'", "1.pt, 2.pt and 'y/'"),
        ("//server/secret/x", "x"),
        ("train/forward, 1/2 and/or a / b", "train/forward, 1/2 and/or a / b"),
        ("parts.0.proj.weight", "parts.0.proj.weight"),
    ],
)
def test_of_absolute_paths_in_a_text_the_last_part_is_kept(text: str, kept: str) -> None:
    assert text_without_folders(text) == kept


def test_of_paths_among_the_arguments_the_last_part_is_kept() -> None:
    given = {
        "/srv/me/secret/train.py": "train.py",
        "secret/train.py": "train.py",
        "--out=/srv/me/my secret, too/o": "--out=o",
        "--data=secret/a.bin,secret/b.bin": "--data=a.bin,b.bin",
        "data.path=../secret/x": "data.path=x",
        "s3://bucket/secret/x": "s3:x",
        "/srv/me/secret/": "secret",
        "--lr=0.1": "--lr=0.1",
        "-c": "-c",
    }
    record = {"argv": list(given), "cwd": "/srv/me", "host": "mine", "pid": 5, "script": "train"}
    assert record_without_paths(record) == {
        "argv": list(given.values()),
        "cwd": None,
        "host": None,
        "pid": 5,
        "script": "train",
    }
    assert record_without_paths({}) == {}  # of an imported snapshot


@pytest.mark.parametrize("text", ["a" * 300_000, "/" * 300_000, "a/" * 150_000, "/a " * 100_000])
def test_long_texts_take_no_time(text: str) -> None:
    text_without_folders(text)
    record_without_paths({"argv": [text, f"--x={text}"]})


@pytest.mark.simgpu
def test_a_copy_is_what_a_confidential_recording_would_have_been(tmp_path: Path) -> None:
    folder = tmp_path / "secret-project"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import torch, gpumemtrace\n"
        "net = torch.nn.Linear(8, 8).cuda()\n"
        "net(torch.ones(4, 8, device='cuda'))\n"
        "raise RuntimeError(f'no CUDA in {__file__}')\n"
    )
    program = [str(folder / "train.py"), "--data", str(folder / "set.bin"), f"--out={folder}/o"]
    options = ["-q", "--stacks", "python", "--modules"]
    for name, more in (("open", []), ("closed", ["--confidential"])):
        command = [*RUN, *options, *more, "-o", f"{name}.gmt", *program]
        assert python(*command, cwd=tmp_path, check=False).returncode == 1
    copy, closed = tmp_path / "copy.gmt", tmp_path / "closed.gmt"
    assert b"secret-project" in (tmp_path / "open.gmt").read_bytes()
    command = ["export", str(tmp_path / "open.gmt"), "--to", "gmt", "--confidential", "-qo"]
    assert main([*command, str(copy)]) == 0
    for path in (copy, closed):
        content = path.read_bytes()
        assert b"secret" not in content and str(tmp_path).encode() not in content
    one, other = gpumemtrace.open(copy), gpumemtrace.open(closed)
    keys = ("argv", "cwd", "host", "script", "git_commit", "devices", "training")
    assert [one.run_record.get(key) for key in keys] == [other.run_record.get(key) for key in keys]
    assert one.footer["error"] == other.footer["error"]
    assert one.footer["error"]["message"] == "no CUDA in train.py"

    def lines(trace: gpumemtrace.Trace) -> list[list[str]]:
        return [list(map(str, trace.sites.stack(int(site)))) for site in trace.site]

    assert lines(one) == lines(other) and any(lines(one))
    assert one.sites.module_names == other.sites.module_names
    # All else is that of the trace itself.
    whole = gpumemtrace.open(tmp_path / "open.gmt")
    for name, column in whole.columns().items():
        np.testing.assert_array_equal(one[name], column)
    assert one.record_count == whole.record_count and one.complete and not one.problems
    assert one.footer["totals"] == whole.footer["totals"]
    assert copy.stat().st_size < 1.1 * (tmp_path / "open.gmt").stat().st_size


def named(folder: Path) -> Path:
    """Return a trace that tells a folder wherever a text stands."""
    builder = TraceBuilder()
    frames = [("/srv/me/secret/model.py", 3, "f"), ("/srv/me/secret/train.py", 7, "<module>")]
    builder.run_record = {"argv": ["/srv/me/secret/train.py"], "host": "secret-host"}
    builder.alloc(MIB, MIB, site=builder.site("fc", *frames, root="Net"))
    builder.add(Kind.MARK, size_bytes=1)
    builder.strings[1] = "saved /srv/me/secret/1.pt"
    path = folder / "named.gmt"
    builder.trace().save(path)
    return path


@pytest.mark.parametrize("to", ["gmt", "memory_viz", "perfetto", "csv"])
def test_no_format_tells_folders(tmp_path: Path, to: str) -> None:
    path = named(tmp_path)
    command = ["export", str(path), "--to", to, "-q", "-o", str(tmp_path / "out")]
    assert main([*command, "--confidential"]) == 0
    assert b"secret" not in (tmp_path / "out").read_bytes()
    if to != "csv":
        assert main([*command, "-f"]) == 0
        assert b"secret" in (tmp_path / "out").read_bytes()


def test_a_copy_can_be_copied_and_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = named(tmp_path)
    assert main(["export", str(path), "--to", "gmt", "--confidential"]) == 0
    copy = tmp_path / "named.copy.gmt"
    assert str(copy) in capsys.readouterr().out
    assert main(["peak", "--by", "site", str(copy)]) == 0
    assert "model.py:3 f" in capsys.readouterr().out
    trace = gpumemtrace.open(copy).without_paths()
    assert trace.text(1) == "saved 1.pt"


def test_a_part_is_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = named(tmp_path)
    assert main(["export", str(path), "--to", "gmt", "--device", "0"]) == 1
    assert "leave out --steps, --device and --at" in capsys.readouterr().err
    part = gpumemtrace.open(path).slice(time_ns=(0, 10_000))
    with pytest.raises(ValueError, match="a slice keeps its paths"):
        part.without_paths()
