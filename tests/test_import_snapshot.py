"""GIVEN snapshots that PyTorch wrote, WHEN imported, THEN lines and peaks are PyTorch's own."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from snapshots import load, record_snapshots, store

import gpumemtrace
from gpumemtrace.analysis.check import check_trace
from gpumemtrace.analysis.lines import LineStream
from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.cli.main import main
from gpumemtrace.errors import SnapshotError
from gpumemtrace.imports.block_sizes import BlockSizes
from gpumemtrace.imports.convert import import_snapshot
from gpumemtrace.schema import Kind

pytestmark = pytest.mark.simgpu

CASES = {
    "whole": {},
    "two devices": {"devices": 2},
    "expandable": {"torch_conf": "expandable_segments:True"},
    "max split": {"torch_conf": "max_split_size_mb:21"},
    "roundup": {"torch_conf": "roundup_power2_divisions:4"},
}


@pytest.fixture(scope="module", params=CASES)
def recorded(request, tmp_path_factory):
    return record_snapshots(tmp_path_factory.mktemp("snapshot"), **CASES[request.param])


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    return record_snapshots(tmp_path_factory.mktemp("snapshot"))


def imported(path, folder, name="imported.gmt"):
    result = import_snapshot(path, folder / name, force=True)
    return result, gpumemtrace.open(folder / name)


def lines_of(trace, device=0):
    parts = [
        np.stack([lines.values[name][lines.device == device] for name in lines.values])
        for _, lines in LineStream(trace)
    ]
    return np.concatenate(parts, axis=1)


def test_peaks_are_the_counters_at_that_moment(recorded, tmp_path):
    path, truth = recorded
    result, trace = imported(path, tmp_path)
    assert result.contradictions == 0 and result.has_times and result.before >= 2
    assert check_trace(trace).verdict == "good"
    peaks = {peaks.device: peaks for peaks in find_peaks(trace)}
    assert sorted(peaks) == list(range(len(truth)))
    stream = LineStream(trace)
    assert sum(len(batch) for batch, _ in stream) > 200
    for device, lines in enumerate(truth):
        for name in ("allocated", "active", "reserved"):
            end, peak = lines[name]
            assert stream.final[device][name] == end, (device, name)
            assert peaks[device].lines[name].size_bytes == peak, (device, name)
        assert stream.final[device]["requested"] == lines["requested"][0]


def test_a_history_cut_anywhere_has_the_same_end(snapshot, tmp_path):
    """The ring overflowed: blocks and segments from before its first entry are found."""
    path, _ = snapshot
    whole = load(path)
    expected = lines_of(imported(path, tmp_path)[1])[:, -1]
    entries = whole["device_traces"][0]
    for cut in range(0, len(entries) + 1, 5):
        part = whole | {"device_traces": [entries[cut:]]}
        result, trace = imported(store(part, tmp_path / "cut.pickle"), tmp_path)
        assert result.contradictions == 0, cut
        assert check_trace(trace).verdict in ("good", "empty"), cut
        lines = lines_of(trace)
        np.testing.assert_array_equal(lines[:, -1], expected, err_msg=str(cut))
        assert (lines[1] <= lines[2]).all() and (lines[2] <= lines[3]).all(), cut


def test_a_real_ring_has_the_lines_of_the_whole(tmp_path):
    path, truth = record_snapshots(tmp_path, max_entries=60)
    result, trace = imported(path, tmp_path)
    assert result.entries == 60 and result.before > 10
    assert np.count_nonzero(trace.lifetimes().is_from_before) == result.before
    stream = LineStream(trace)
    assert all(len(batch) for batch, _ in stream)
    for name, (end, _) in truth[0].items():
        assert stream.final[0][name] == end


def test_steps_and_phases_from_annotations(snapshot, tmp_path):
    _, trace = imported(snapshot[0], tmp_path)
    assert trace.steps.number.tolist() == [0, 1, 2]
    assert set(trace.phase_names) == {"forward", "optimizer", "zero_grad"}
    forward = [span for span in trace.phases if span.name == "forward"]
    assert len(forward) == 3
    assert all(span.end_event > span.first_event for span in forward)
    failed = trace.records(Kind.ALLOC_FAILED)
    assert failed["size_bytes"].tolist() == [2**45]


def test_metadata_is_a_phase_and_profiler_steps_are_steps(snapshot, tmp_path):
    whole = load(snapshot[0])
    entries = whole["device_traces"][0]
    for entry in entries[:50]:
        entry["user_metadata"] = "loading"
    times = [entries[i]["time_us"] for i in (60, 80, 100)]
    stages = [("START", 7), ("END", 7), ("START", 8), ("END", 8)]
    whole["external_annotations"] = [
        {"device": 0, "name": f"ProfilerStep#{n}", "stage": stage, "time_us": time}
        for (stage, n), time in zip(stages, [times[0], times[1], times[1], times[2]], strict=True)
    ]
    _, trace = imported(store(whole, tmp_path / "a.pickle"), tmp_path)
    assert trace.steps.number.tolist() == [7, 8]
    assert trace.phase_names == ("loading",)
    (span,) = trace.phases
    assert span.entered and span.end_event > 10


def test_what_older_torch_wrote(snapshot, tmp_path):
    """torch 2.0: no times, no requested_size, no address in a block, nothing but the basics."""
    path, truth = snapshot
    whole = load(path)
    old = copy.deepcopy({name: whole[name] for name in ("segments", "device_traces")})
    for entry in old["device_traces"][0]:
        for name in ("time_us", "compile_context", "user_metadata", "pool_id", "frames"):
            entry.pop(name, None)
    for segment in old["segments"]:
        for name in ("segment_pool_id", "is_expandable", "requested_size", "frames"):
            segment.pop(name, None)
        for block in segment["blocks"]:
            requested = block.pop("requested_size")
            block.pop("address")
            if block["state"] != "inactive":
                block["history"] = [{"addr": 0, "real_size": requested, "frames": []}]
    result, trace = imported(store(old, tmp_path / "old.pickle"), tmp_path)
    assert not result.has_times
    assert "made up" in trace.run_record["imported"]["times"]
    peaks = find_peaks(trace)[0]
    for name in ("allocated", "active", "reserved"):
        assert peaks.lines[name].size_bytes == truth[0][name][1]


def test_segments_alone(snapshot, tmp_path):
    """What `torch.cuda.memory_snapshot()` returns: a list, without any history."""
    path, truth = snapshot
    result, trace = imported(store(load(path)["segments"], tmp_path / "s.pickle"), tmp_path)
    assert result.entries == 0
    peaks = find_peaks(trace)[0]
    for name in ("requested", "allocated", "active", "reserved"):
        assert peaks.lines[name].size_bytes == truth[0][name][0]


def test_an_annotated_tensor_is_a_tag(snapshot, tmp_path):
    whole = load(snapshot[0])
    entries = whole["device_traces"][0]
    alloc = next(entry for entry in entries if entry["action"] == "alloc")
    note = alloc | {"action": "annotate", "size": 0, "user_metadata": "gradient: w"}
    entries.insert(entries.index(alloc) + 1, note)
    _, trace = imported(store(whole, tmp_path / "a.pickle"), tmp_path)
    assert "gradient" in trace.lifetimes().category
    tag = trace.records(Kind.TAG)
    assert trace.text(int(tag["extra"][0])) == "w"


def test_entries_that_contradict_each_other_are_counted(snapshot, tmp_path, capsys):
    whole = load(snapshot[0])
    entries = whole["device_traces"][0]
    alloc = next(i for i, entry in enumerate(entries) if entry["action"] == "alloc")
    entries.insert(alloc + 1, entries[alloc])
    path = store(whole, tmp_path / "a.pickle")
    assert main(["import", str(path), "-o", str(tmp_path / "a.gmt")]) == 0
    assert "1 entry contradicts others" in capsys.readouterr().err
    assert check_trace(gpumemtrace.open(tmp_path / "a.gmt")).verdict == "good"


def test_the_command(snapshot, tmp_path, capsys):
    path = store(load(snapshot[0]), tmp_path / "a.pickle")
    assert main(["import", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"Wrote {tmp_path / 'a.gmt'}: " in out and "blocks from before them" in out
    assert f"Next: gpumemtrace summary {tmp_path / 'a.gmt'}" in out
    assert main(["import", str(path)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert main(["import", "-qf", str(path)]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["info", str(tmp_path / "a.gmt")]) == 0
    assert "from a PyTorch memory snapshot" in capsys.readouterr().out


def test_a_missing_file(tmp_path):
    with pytest.raises(OSError):
        import_snapshot(tmp_path / "no.pickle", tmp_path / "a.gmt")
    store({"segments": [{"address": 5}]}, tmp_path / "bad.pickle")
    with pytest.raises(SnapshotError):
        import_snapshot(tmp_path / "bad.pickle", tmp_path / "a.gmt")
    assert not (tmp_path / "a.gmt").exists()


def test_block_sizes_by_the_rules_of_the_allocator():
    sizes = BlockSizes({})
    mib = 1 << 20
    assert [sizes.rounded(n) for n in (0, 1, 512, 513)] == [0, 512, 512, 1024]
    sizes.add_segment(0, 20 * mib)
    assert sizes.take(0, 12 * mib) == 12 * mib
    assert sizes.take(12 * mib, 7 * mib) == 8 * mib  # 1 MiB would be left: it stays with the block
    sizes.give_back(12 * mib)
    assert sizes.take(12 * mib, 7 * mib - 1) == 8 * mib
    sizes.give_back(12 * mib)
    assert sizes.take(12 * mib, 7 * mib - 513) == 7 * mib - 512
    assert sizes.take(40 * mib, 3) == 512  # in no segment that is known
    halves = BlockSizes({"roundup_power2_divisions": {str(1 << i): 2 for i in range(16)}})
    assert halves.rounded(5 * mib) == 6 * mib
    assert halves.rounded(700) == 1024
