"""GIVEN a trace that grows, WHEN `gpumemtrace top` looks at it, THEN it shows the last record."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import recorded
from launch import start
from rich.console import Console

import gpumemtrace
from gpumemtrace.analysis.live import Follower
from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.cli.main import main
from gpumemtrace.cli.top_screen import status_screen
from gpumemtrace.records import FileSource
from gpumemtrace.schema import Kind
from gpumemtrace.trace_file import FileWriter, Names


def write(writer: FileWriter, records: dict[str, np.ndarray]) -> None:
    writer.append(records | {"size_bytes": records["size_bytes"].view(np.uint64)})
    writer.flush()


def test_each_look_shows_what_the_whole_trace_says_up_to_there(tmp_path):
    whole = tmp_path / "whole.gmt"
    recorded.load("gpt2")[0].save(whole)
    source = FileSource(whole)
    batches = list(source.batches())
    records = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    growing = tmp_path / "growing.gmt"
    writer = FileWriter(growing)
    writer.write_metadata(source.run_record)
    writer.write_names(Names(phases=source.names.phases))
    follower = None
    count = len(records["kind"])
    cuts = [0, 1, 20_000, 20_000, 90_001, count]
    for first, end in itertools.pairwise(cuts):
        if end > first:
            write(writer, {name: column[first:end] for name, column in records.items()})
        follower = follower or Follower(growing)
        status = follower.look()
        reference = gpumemtrace.open(growing)
        assert status.events == len(reference)
        assert not status.is_closed
        begun = reference.records(Kind.STEP)["size_bytes"].tolist()
        assert status.step == (begun[-1] if begun else 0)
        for device, found in zip(status.devices, find_peaks(reference), strict=True):
            for line in device.peak:
                assert device.peak[line] == found.lines[line].size_bytes, line
    writer.close({})
    assert follower is not None
    status = follower.look()
    assert status.is_closed
    truth = find_peaks(gpumemtrace.open(whole))[0]
    assert status.devices[0].peak["reserved"] == truth.lines["reserved"].size_bytes
    assert status.devices[0].now["allocated"] == int(truth.steps.end["allocated"][-1])


def test_once_for_scripts(tmp_path, capsys):
    path = tmp_path / "run.gmt"
    recorded.load("gpt2")[0].save(path)
    assert main(["top", "--once", "--json", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["step"] == 60
    assert found["is_closed"]
    assert found["devices"][0]["peak_bytes"]["allocated"] == 3_362_081_792
    assert main(["top", str(path)]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert "step 60" in line and "ended" in line and "peak 3.131 GiB" in line


def test_the_screen_has_a_table_per_device(tmp_path):
    path = tmp_path / "run.gmt"
    recorded.load("gpt2")[0].save(path)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(status_screen(console, Follower(path).look()))
    text = console.export_text()
    assert "cuda:0" in text
    assert "allocated" in text and "3.131 GiB" in text


@pytest.mark.parametrize("interval", ["0", "x", "1e9"])
def test_a_wrong_interval_is_named(interval, capsys):
    with pytest.raises(SystemExit):
        main(["top", "--interval", interval, "run.gmt"])
    assert "give seconds" in capsys.readouterr().err


@pytest.mark.simgpu
def test_a_run_that_goes_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import time, torch, gpumemtrace\n"
        "for step in range(1000):\n"
        "    kept = torch.empty(1 << 20, device='cuda')\n"
        "    gpumemtrace.step()\n"
        "    time.sleep(0.02)\n"
    )
    trace = tmp_path / "run.gmt"
    training = start(["-m", "gpumemtrace", "run", "-q", "-o", str(trace), "train.py"], cwd=tmp_path)
    try:
        deadline = time.monotonic() + 60
        while not trace.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        top = subprocess.Popen(
            [sys.executable, "-m", "gpumemtrace", "top", "--interval", "0.3", "--json", trace],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert top.stdout is not None
        looks = [json.loads(top.stdout.readline()) for _ in range(6)]
    finally:
        training.kill()
        training.communicate()
        top.kill()
        top.communicate()
    steps = [look["step"] for look in looks]
    assert steps == sorted(steps) and steps[-1] > steps[0]
    assert not any(look["is_closed"] for look in looks)
    assert looks[-1]["devices"][0]["peak_bytes"]["allocated"] == 2 * 4 * (1 << 20)
