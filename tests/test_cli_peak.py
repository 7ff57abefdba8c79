"""GIVEN a trace, WHEN ``gpumemtrace peak`` is run, THEN it says what owned the peak."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import recorded

from gpumemtrace.cli.main import main


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> str:
    path: Path = tmp_path_factory.mktemp("traces") / "gpt2.gmt"
    recorded.load("gpt2")[0].save(path)
    return str(path)


def test_a_sentence_and_a_table(gpt2, capsys):
    assert main(["peak", gpt2]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("cuda:0: peak 3.131 GiB allocated in step 1, backward, at ")
    assert lines[0].endswith(
        ": activation 1.275 GiB, optimizer state 967.4 MiB, parameter 475.5 MiB"
    )
    assert any(line.split() == ["activation", "1.275", "GiB", "40.7%", "248"] for line in lines)
    assert any(line.split() == ["all", "3.131", "GiB", "100.0%", "699"] for line in lines)
    assert lines[-2].startswith("Over 61 steps: median peak 3.131 GiB; the phase that sets it: ")
    assert "backward in 59" in lines[-2]
    assert lines[-1] == f"Next: gpumemtrace report {gpt2}"


def test_one_step_by_phase_and_the_rest_in_one_line(gpt2, capsys):
    assert main(["peak", "-q", gpt2, "--step", "30", "--by", "phase", "--top", "2"]) == 0
    out = capsys.readouterr().out
    assert "in step 30, backward" in out
    assert "born in phase" in out and "3 more" in out and "Over" not in out
    assert main(["peak", "-q", gpt2, "--line", "reserved", "--by", "step"]) == 0
    assert "cached by the allocator" in capsys.readouterr().out


def test_json(gpt2, capsys):
    assert main(["peak", "--json", gpt2]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"] == 3362081792
    assert (found["step"], found["phase"], found["device"]) == (1, "backward", 0)
    for groups in found["groups"].values():
        assert sum(group["bytes"] for group in groups) == found["bytes"]
    steps = found["steps"]
    for parts in (steps["category_bytes"], steps["phase_bytes"]):
        assert [sum(column) for column in zip(*parts.values(), strict=True)] == steps["bytes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "99"], "no step 99: the trace has steps 0 to 60"),
        (["--device", "2"], "cuda:2 has no events in this trace: it has cuda:0"),
    ],
)
def test_errors_are_one_line(gpt2, capsys, arguments, message):
    assert main(["peak", gpt2, *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_wrong_number_is_a_wrong_argument(gpt2, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["peak", gpt2, "--top", "0"])
    assert exit.value.code == 2
    assert "argument --top: '0' must be at least 1" in capsys.readouterr().err
