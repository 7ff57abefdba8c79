"""GIVEN steps with phases, WHEN their changes are asked for, THEN sums and means are exact."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import MIB, PHASE_NAMES, TraceBuilder, event_columns

from gpumemtrace.analysis.phase_changes import find_phase_changes
from gpumemtrace.cli.main import main
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace

MS = 1_000_000


def run(steps: int) -> TraceBuilder:
    """Per step: load keeps 1 MiB and 3 MiB on the host, update frees half of it; 10 ms each."""
    builder = TraceBuilder()
    host = 100 * MIB
    for step in range(steps):
        builder.add(Kind.HOST_USED, address=host, device=-1, after_ns=0)
        builder.phase("load", after_ns=0).alloc(512 + 1024 * step, MIB)
        builder.stats(0, (step + 1) * MIB, (step + 1) * MIB, (2 * step + 2) * MIB)
        host += 3 * MIB
        builder.add(Kind.DEVICE_USED, size_bytes=300 * MIB + step)
        builder.phase("update", after_ns=10 * MS)
        builder.add(Kind.HOST_USED, address=host, device=-1, after_ns=0)
        builder.step(step + 1, after_ns=10 * MS)
    return builder


def test_means_per_step():
    changes = find_phase_changes(run(50).trace(), steps=(10, 40))
    assert changes.number.tolist() == list(range(10, 40))
    (device,) = changes.complete.to_dict()["devices"]
    phases = {row["name"]: row for row in device["phases"]}
    assert phases["load"]["allocated_bytes"] == MIB
    assert phases["load"]["reserved_bytes"] == 2 * MIB
    assert phases["load"]["device_used_bytes"] == 300 * MIB + 39
    assert phases["load"]["host_bytes"] == pytest.approx(3 * MIB, rel=0.01)
    assert phases["update"]["allocated_bytes"] == 0
    assert phases["update"]["host_bytes"] == pytest.approx(0, abs=0.01 * MIB)


def test_the_step_that_did_not_end_is_in_no_mean():
    builder = run(4)
    for step in range(4):  # what a program gives back at its end
        builder.free(512 + 1024 * step)
    changes = find_phase_changes(builder.trace())
    assert changes.number.tolist() == [0, 1, 2, 3, 4]
    mean = changes.complete.to_dict()
    assert (mean["steps"], mean["to_step"]) == (4, 3)
    assert {row["allocated_bytes"] for row in mean["devices"][0]["phases"]} == {MIB, 0}
    (device,) = changes.devices
    assert device.allocated_bytes[-1].sum() == -4 * MIB


def test_a_trace_without_an_ended_step_has_means_too():
    changes = find_phase_changes(TraceBuilder().phase("a").alloc(512, MIB).trace())
    assert changes.complete.to_dict()["devices"][0]["phases"][0]["allocated_bytes"] == MIB


def test_without_samples_the_host_is_not_known():
    changes = find_phase_changes(TraceBuilder().phase("a").alloc(512, 100).step(1).trace())
    assert changes.host_bytes is None
    assert changes.devices[0].device_used_bytes.tolist() == [[-1, -1]]


@given(event_columns(), st.integers(1, 30))
@settings(max_examples=60)
def test_changes_equal_a_slow_reference(columns, batch_records):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    object.__setattr__(trace._source, "batch_records", batch_records)
    changes = find_phase_changes(trace)
    live: dict[tuple[int, int], int] = {}
    slow: dict[tuple[int, int, int], int] = {}
    for i in range(len(columns["kind"])):
        key = (int(columns["device"][i]), int(columns["address"][i]))
        change = -live.pop(key, 0)
        if columns["kind"][i] == 1:
            live[key] = -(-int(columns["size_bytes"][i]) // 512) * 512
            change += live[key]
        place = (key[0], int(trace.step[i]), int(trace.phase[i]))
        slow[place] = slow.get(place, 0) + change
    for device in changes.devices:
        for row, number in enumerate(changes.number.tolist()):
            for phase in range(-1, len(trace.phase_names)):
                got = device.allocated_bytes[row, phase]
                assert got == slow.get((device.device, number, phase), 0)
    total = sum(int(device.allocated_bytes.sum()) for device in changes.devices)
    assert total == sum(live.values()) == sum(slow.values())


def test_the_command(tmp_path, capsys):
    run(20).trace().save(tmp_path / "a.gmt")
    assert main(["phases", str(tmp_path / "a.gmt"), "--steps", "5:15"]) == 0
    out = capsys.readouterr().out
    assert "cuda:0, steps 5 to 14, mean per step" in out
    (load,) = [line.split() for line in out.splitlines() if line.startswith("load")]
    assert load == ["load", "+1.0", "MiB", "+2.0", "MiB", "+3.0", "MiB", "300.0", "MiB"]
    assert main(["phases", str(tmp_path / "a.gmt"), "--steps", "5:7", "--each-step"]) == 0
    rows = [line.split()[:4] for line in capsys.readouterr().out.splitlines() if "load" in line]
    assert rows == [["5", "load", "+1.0", "MiB"], ["6", "load", "+1.0", "MiB"]]
    assert main(["phases", "--json", str(tmp_path / "a.gmt")]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 20
    assert main(["phases", str(tmp_path / "a.gmt"), "--steps", "50:60"]) == 1
    assert "no step in these: it has 20 steps" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["phases", str(tmp_path / "a.gmt"), "--steps", "seven"])


def test_the_arrays_have_a_row_per_step_and_a_column_for_no_phase():
    changes = find_phase_changes(run(3).trace())
    assert changes.phases == ("load", "update")
    assert changes.devices[0].allocated_bytes.shape == (3, 3)
    np.testing.assert_array_equal(changes.devices[0].allocated_bytes[:, 0], [MIB] * 3)
