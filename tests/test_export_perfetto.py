"""GIVEN traces, WHEN exported for Perfetto, THEN its own schema reads back lines, phases, marks."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import recorded
from hypothesis import given
from hypothesis import strategies as st
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.lines import LineStream
from gpumemtrace.cli.main import main
from gpumemtrace.export.formats import ExportOptions
from gpumemtrace.export.perfetto import write
from gpumemtrace.export.protobuf import padded, varint
from gpumemtrace.schema import Kind

pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def exported(trace, folder, **options):
    """The events of each track by its name: (time, type, name or value)."""
    path = folder / "a.pftrace"
    written = write(trace, path, ExportOptions(**options))
    message = pb2.Trace()
    message.ParseFromString(path.read_bytes())
    assert len(message.packet) == written.count
    names, events = {}, defaultdict(list)
    for packet in message.packet:
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid == 1 or track.parent_uuid == 1
            names[track.uuid] = track.name or track.thread.thread_name
            assert not track.HasField("counter") or track.counter.unit == 3  # bytes
            continue
        event = packet.track_event
        value = event.counter_value if event.type == COUNTER else event.name
        events[names[event.track_uuid]].append((packet.timestamp, event.type, value))
    return dict(events)


def test_the_lines_at_every_event(tmp_path):
    trace = recorded.load("gpt2")[0].slice(steps=(1, 3))
    events = exported(trace, tmp_path)
    for name in ("requested", "allocated", "active", "reserved"):
        time, line = [], []
        for batch, lines in LineStream(trace):
            points = lines.points(0)
            time += batch.raw["time_ns"][points.rows].tolist()
            line += points.values[name].tolist()
        changes = np.flatnonzero(np.diff(line, prepend=-1)).tolist()
        expected = [(time[i], COUNTER, line[i]) for i in changes]
        assert events[f"cuda:0 {name}"] == expected


def slices_of(events):
    """(name, begin, end) of the slices, and that each is closed in the order of nesting."""
    found, stack = [], []
    for time, kind, name in events:
        if kind == BEGIN:
            stack.append((name, time))
        elif kind == END:
            found.append((*stack.pop(), time))
    assert not stack
    return found


def test_phases_steps_and_marks(tmp_path):
    builder = TraceBuilder(strings={7: "loss is NaN"}, run_record={"argv": ["train.py"], "pid": 9})
    builder.phase("train").phase("train/forward").alloc(512, 1).phase("train", entered=False)
    builder.phase("train/forward").phase("").step(1)
    builder.phase("data", thread=2).add(Kind.MARK, size_bytes=7, device=-1)
    builder.add(Kind.ALLOC_FAILED, size_bytes=3 * MIB).add(Kind.GAP, address=5, device=-1)
    builder.add(Kind.DEVICE_USED, size_bytes=9 * MIB)
    events = exported(builder.trace(), tmp_path)
    assert slices_of(events["driving thread"]) == [
        ("forward", 2000, 4000),
        ("forward", 5000, 6000),
        ("train", 1000, 6000),
    ]
    assert slices_of(events["thread 2"]) == [("data", 8000, 12000)]
    assert slices_of(events["steps"]) == [("step 0", 1000, 7000), ("step 1", 7000, 12000)]
    instants = [name for _, kind, name in events["driving thread"] if kind == INSTANT]
    assert instants == ["loss is NaN", "out of memory: 3.0 MiB on cuda:0", "5 events lost"]
    assert events["cuda:0 device used"] == [(12000, COUNTER, 9 * MIB)]
    assert "cuda:0 reserved" not in events  # not known, so not told


def test_some_devices_until_a_time(tmp_path):
    builder = TraceBuilder().alloc(512, 1).alloc(1024, 2, device=1).alloc(2048, 3, device=1)
    assert list(exported(builder.trace(), tmp_path, devices=frozenset({0}))) == [
        "cuda:0 requested",
        "cuda:0 allocated",
        "steps",
    ]
    events = exported(builder.trace(), tmp_path, until_ns=2000)
    assert events["cuda:1 requested"] == [(2000, COUNTER, 2)]


def test_the_command(tmp_path, capsys):
    TraceBuilder().alloc(512, 1).trace().save(tmp_path / "a.gmt")
    assert main(["export", str(tmp_path / "a.gmt"), "--to", "perfetto"]) == 0
    assert "a.pftrace: 8 packets" in capsys.readouterr().out


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_padded_numbers_are_read_as_the_short_ones(values):
    rows = padded(np.array(values, np.int64))
    message = pb2.TrackEvent()
    for value, row in zip(values, rows, strict=True):
        message.ParseFromString(varint(30 << 3) + row.tobytes())
        assert message.counter_value == value
        message.ParseFromString(varint(30 << 3) + varint(value))
        assert message.counter_value == value
