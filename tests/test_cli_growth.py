"""GIVEN traces, WHEN `gpumemtrace growth` is run, THEN sentence and exit status are right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import recorded
from growth_runs import leak, train, with_reserved
from synthetic import MIB, TraceBuilder

from gpumemtrace.cli.main import main


@pytest.fixture(scope="module")
def leaking(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("growth") / "leak.gmt"
    train(100, forward=leak(MIB, first=2)).trace().save(path)
    return path


def test_growing(leaking, capsys):
    assert main(["growth", str(leaking)]) == 10
    out = capsys.readouterr().out
    assert out.startswith(
        "cuda:0 growing: 1.00 MiB per step since step 2 (95% between 1.00 MiB and 1.00 MiB, "
        "Theil-Sen over steps "
    )
    assert (
        "; activation born in forward: 1.00 MiB per step, mostly 1 x 1.0 MiB, thread 1; the dev"
        in out
    )
    assert "98.0 MiB" in out  # the table: what is in use at the end


def test_growing_as_json(leaking, capsys):
    assert main(["growth", "--json", str(leaking)]) == 10
    result = json.loads(capsys.readouterr().out)
    assert result["path"] == str(leaking)
    assert (result["verdict"], result["bytes_per_step"]) == ("growing", MIB)
    assert result["devices"][0]["first_step"] == 2


@pytest.mark.parametrize(("tolerated", "status"), [("1MiB", 0), ("1023KiB", 10)])
def test_what_is_tolerated(leaking, tolerated, status):
    assert main(["growth", "-q", "--tolerate", tolerated, str(leaking)]) == status


def test_a_size_that_is_none(leaking, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["growth", "--tolerate", "much", str(leaking)])
    assert exit.value.code == 2
    assert "'much' is not a size" in capsys.readouterr().err


def test_stable(tmp_path, capsys):
    recorded.load("gpt2")[0].save(tmp_path / "a.gmt")
    assert main(["growth", "-q", str(tmp_path / "a.gmt")]) == 0
    assert capsys.readouterr().out.startswith(
        "cuda:0 stable: what is in use does not grow from step to step (steps "
    )


def test_fragmentation(tmp_path, capsys):
    reserved = with_reserved(train(100), lambda step: 600 * MIB + step // 5 * 20 * MIB)
    reserved.save(tmp_path / "a.gmt")
    assert main(["growth", "-q", str(tmp_path / "a.gmt")]) == 11
    assert "fragmentation: reserved memory grows by " in capsys.readouterr().out


def test_one_large_step(tmp_path, capsys):
    train(100, forward=leak(99 * MIB, first=50, last=51)).trace().save(tmp_path / "a.gmt")
    assert main(["growth", "-q", str(tmp_path / "a.gmt")]) == 0
    out = capsys.readouterr().out
    assert "one large step: step 50 took 99.0 MiB more, which stayed in use" in out


def test_too_few_steps(tmp_path, capsys):
    train(0).trace().save(tmp_path / "a.gmt")
    assert main(["growth", str(tmp_path / "a.gmt")]) == 0
    assert "still warming up: 0 steps are too few to judge (no opt" in capsys.readouterr().out


def test_a_file_that_is_still_being_written(leaking, tmp_path, capsys):
    recorded.load("gpt2")[0].save(tmp_path / "whole.gmt")
    content = (tmp_path / "whole.gmt").read_bytes()
    (tmp_path / "cut.gmt").write_bytes(content[: len(content) - 1000])
    assert main(["growth", "-q", str(tmp_path / "cut.gmt")]) == 0
    assert "cuda:0 " in capsys.readouterr().out


def test_one_device(leaking, capsys):
    assert main(["growth", "-q", "--device", "0", str(leaking)]) == 10
    assert main(["growth", "-q", "--device", "3", str(leaking)]) == 1
    assert "device 3 has no events: those that have: 0" in capsys.readouterr().err


def test_what_holds_nothing_is_not_counted_among_the_groups(tmp_path, capsys):
    builder = TraceBuilder()
    for step in range(12):
        for i in range(15):  # what each of these phases makes is gone when the step ends
            builder.phase(f"phase{i}").alloc((1 + i) << 40, MIB)
        for i in range(15):
            builder.free((1 + i) << 40)
        builder.phase("forward").alloc((100 << 40) + step * MIB, MIB).phase("").step(step + 1)
    builder.trace().save(tmp_path / "a.gmt")
    main(["growth", str(tmp_path / "a.gmt")])
    out = capsys.readouterr().out
    assert "forward" in out and "phase3" not in out and "showing" not in out
