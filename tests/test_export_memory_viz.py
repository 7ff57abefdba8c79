"""GIVEN a run, WHEN exported as a snapshot, THEN it is the one that PyTorch itself wrote of it."""

from __future__ import annotations

import pickle
import pickletools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simgpu import result_of, run_simulated
from snapshots import VIEWER_OPCODES, load
from synthetic import MIB, TraceBuilder

import gpumemtrace
from gpumemtrace import _core
from gpumemtrace.analysis.check import check_trace
from gpumemtrace.analysis.lines import LineStream
from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.cli.main import main
from gpumemtrace.export.formats import ExportOptions
from gpumemtrace.export.memory_viz import write
from gpumemtrace.export.plain_pickle import encode
from gpumemtrace.imports.convert import import_snapshot
from gpumemtrace.schema import Category, Kind

_RUN = """
import sys
import torch
import gpumemtrace

folder = sys.argv[1]
torch.cuda.memory._record_memory_history()
with gpumemtrace.install(f"{folder}/run.gmt"):
    model = torch.nn.Sequential(
        torch.nn.Linear(1000, 3000), torch.nn.ReLU(), torch.nn.Linear(3000, 1000)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    side = torch.cuda.Stream()
    for step in range(4):
        x = torch.randn(64, 1000, device="cuda")
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.cuda.stream(side):
            z = torch.ones(3_000_000, device="cuda")
            z.record_stream(torch.cuda.default_stream())
        del z
        if step == 2:
            torch.cuda.empty_cache()
    try:
        torch.empty(2**45, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    torch.cuda.memory._dump_snapshot(f"{folder}/torch.pickle")
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run_simulated(_RUN, args=[str(folder)])
    assert main(["export", "-q", str(folder / "run.gmt"), "--to", "memory_viz"]) == 0
    return folder


def key_of(entry):
    return tuple(entry.get(n) for n in ("action", "addr", "size", "stream", "device_free"))


def segment_of(segment):
    names = ("device", "address", "total_size", "allocated_size", "active_size", "requested_size")
    more = ("stream", "segment_type", "segment_pool_id", "is_expandable")
    blocks = [tuple(block[n] for n in ("address", "size", "state")) for block in segment["blocks"]]
    return tuple(segment[n] for n in (*names, *more)), blocks


@pytest.mark.simgpu
class TestARealRun:
    def test_the_entries_are_those_of_pytorch(self, run):
        ours, torchs = load(run / "run.pickle"), load(run / "torch.pickle")
        entries = [e for e in ours["device_traces"][0] if e["action"] != "annotate"]
        expected = torchs["device_traces"][0]
        assert Counter(map(key_of, entries)) == Counter(map(key_of, expected))
        allocs = [[key_of(e) for e in t if e["action"] == "alloc"] for t in (entries, expected)]
        assert allocs[0] == allocs[1]
        times = [entry["time_us"] for entry in entries]
        assert abs(times[0] - expected[0]["time_us"]) < 10_000_000

    def test_the_segments_are_those_of_pytorch(self, run):
        ours, torchs = load(run / "run.pickle"), load(run / "torch.pickle")
        assert sorted(map(segment_of, ours["segments"])) == sorted(
            map(segment_of, torchs["segments"])
        )

    def test_pytorch_reads_it(self, run):
        """C70, and the totals of `stats`."""
        done = run_simulated(
            """
            import json, pickle, sys
            from torch.cuda import _memory_viz as viz
            read = lambda name: pickle.load(open(f"{sys.argv[1]}/{name}.pickle", "rb"))
            totals = [
                [line for line in viz.segsum(read(name)).splitlines() if line.startswith("total_")]
                for name in ("run", "torch")
            ]
            ours = read("run")
            pages = [viz.trace_plot(ours), viz.segment_plot(ours)]
            pages.append(viz.trace_plot(ours, plot_segments=True))
            listing = viz.trace(ours)
            flames = viz.memory(ours, format_flamegraph=lambda lines: lines)
            print(json.dumps([totals, list(map(len, pages)), listing, flames]))
            """,
            args=[str(run)],
        )
        totals, pages, listing, flames = result_of(done)
        assert len(totals[0]) == 3 and totals[0] == totals[1]
        assert min(pages) > 10_000
        assert "raise OutOfMemoryError" in listing and "cudaMalloc(" in listing
        assert "active_allocated;step:0:optimizer" in flames

    def test_there_and_back(self, run, tmp_path):
        """.gmt -> memory_viz -> .gmt: the same events, steps, phases, lines and peaks."""
        before = gpumemtrace.open(run / "run.gmt")
        result = import_snapshot(run / "run.pickle", tmp_path / "back.gmt")
        after = gpumemtrace.open(tmp_path / "back.gmt")
        assert result.contradictions == 0
        assert check_trace(after).verdict == "good"
        for name in ("kind", "address", "size_bytes", "step"):
            np.testing.assert_array_equal(after[name], before[name], err_msg=name)
        is_alloc = before.kind == 1
        for name in ("device", "stream"):  # a recorded free names neither
            np.testing.assert_array_equal(after[name][is_alloc], before[name][is_alloc])
        phases = [[t.phase_name(int(p)) for p in t.phase] for t in (before, after)]
        assert phases[0] == phases[1]
        elapsed = [np.diff(t.time_ns) for t in (before, after)]
        # Whole microseconds, and where two threads' clocks step back, a few more.
        assert np.abs(elapsed[0] - elapsed[1]).max() <= 10_000
        assert after.steps.number.tolist() == before.steps.number.tolist()
        for one, other in zip(find_peaks(before), find_peaks(after), strict=True):
            for name in ("requested", "allocated", "active", "reserved"):
                assert one.lines[name].size_bytes == other.lines[name].size_bytes, name
        ends = [{**LineStream(t).final} for t in (before, after)]
        assert ends[0] == ends[1]
        assert after.run_record["argv"] == before.run_record["argv"]
        tags = [t.records(Kind.TAG) for t in (before, after)]
        for name in ("address", "stream"):
            np.testing.assert_array_equal(tags[0][name], tags[1][name])

    def test_some_steps(self, run, tmp_path):
        trace = gpumemtrace.open(run / "run.gmt").slice(steps=(1, 3))
        write(trace, tmp_path / "part.pickle", ExportOptions())
        import_snapshot(tmp_path / "part.pickle", tmp_path / "part.gmt")
        back = gpumemtrace.open(tmp_path / "part.gmt")
        assert back.steps.number.tolist() == [1, 2]
        for one, other in zip(find_peaks(trace), find_peaks(back), strict=True):
            for name in ("allocated", "reserved"):
                assert one.lines[name].size_bytes == other.lines[name].size_bytes, name


def exported(trace, folder, **options):
    written = write(trace, folder / "a.pickle", ExportOptions(**options))
    return written, load(folder / "a.pickle")


def small_run():
    builder = TraceBuilder(strings={7: "half way", 8: "w"}, run_record={"argv": ["train.py"]})
    builder.phase("train").phase("train/forward")
    builder.add(Kind.SEGMENT_ALLOC, address=2 * MIB, size_bytes=2 * MIB)
    builder.alloc(2 * MIB, 100).stats(100, 512, 512, 2 * MIB).alloc(2 * MIB + 512, 600)
    builder.add(Kind.TAG, address=2 * MIB, size_bytes=100, stream=Category.GRADIENT, extra=8)
    builder.phase("train", entered=False).add(Kind.MARK, size_bytes=7, device=-1)
    return builder.free(2 * MIB + 512).step(1)


def test_only_what_the_viewer_in_the_browser_can_read(tmp_path):
    exported(small_run().trace(), tmp_path)
    content = (tmp_path / "a.pickle").read_bytes()
    used = {opcode.name for opcode, _, _ in pickletools.genops(content)}
    assert used <= set(VIEWER_OPCODES.split())
    assert content[:2] == b"\x80\x02"
    assert _core.load_plain_pickle(content) == pickle.loads(content)


def test_entries_say_step_and_phase(tmp_path):
    written, snapshot = exported(small_run().trace(), tmp_path)
    entries = snapshot["device_traces"][0]
    assert written.count == len(entries) == 6
    assert [entry["action"] for entry in entries] == [
        *("segment_alloc", "alloc", "alloc", "annotate", "free_requested", "free_completed"),
    ]
    assert entries[1]["frames"] == [{"filename": "step", "line": 0, "name": "forward"}]
    assert entries[3]["user_metadata"] == "gradient: w"
    assert entries[4]["size"] == 600
    (segment,) = snapshot["segments"]
    assert [b["state"] for b in segment["blocks"]] == ["active_allocated", "inactive"]
    assert segment["allocated_size"] == 512 and segment["requested_size"] == 100


def test_marks_and_nested_phases_there_and_back(tmp_path):
    exported(small_run().trace(), tmp_path)
    import_snapshot(tmp_path / "a.pickle", tmp_path / "b.gmt")
    trace = gpumemtrace.open(tmp_path / "b.gmt")
    assert trace.phase_paths == (("train",), ("train", "forward"))
    marks = trace.records(Kind.MARK)
    assert [trace.text(int(id)) for id in marks["size_bytes"]] == ["half way"]
    assert trace.lifetimes().category.tolist()[0] == "gradient"
    assert trace.run_record["argv"] == ["train.py"]


def test_until_a_time_and_some_devices(tmp_path):
    builder = TraceBuilder().alloc(512, 1).alloc(1024, 2, device=1).alloc(2048, 3)
    _, snapshot = exported(builder.trace(), tmp_path, until_ns=2000)
    assert [len(trace) for trace in snapshot["device_traces"]] == [1, 1]
    written, snapshot = exported(builder.trace(), tmp_path, devices=frozenset({1}))
    assert [len(trace) for trace in snapshot["device_traces"]] == [0, 1]
    assert any("segments are not known" in remark for remark in written.remarks)


def test_what_can_not_be_said_is_told(tmp_path):
    builder = TraceBuilder().alloc(512, 1).alloc(512, 2).free(4096)
    written, snapshot = exported(builder.trace(), tmp_path)
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    assert actions == ["alloc", "free_requested", "free_completed", "alloc"]
    assert any("1 free of blocks that the trace does not know" in r for r in written.remarks)
    assert any("missing in the trace: 1 free," in r for r in written.remarks)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(plain)
def test_what_is_encoded_is_read_by_python(value):
    assert pickle.loads(b"\x80\x02" + encode(value) + b".") == value
