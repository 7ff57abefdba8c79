"""GIVEN call stacks and modules, WHEN snapshots are written and read, THEN they stay."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from owned_traces import transformer
from snapshots import VIEWER_OPCODES
from synthetic import MIB, TraceBuilder

import gpumemtrace
from gpumemtrace import _core
from gpumemtrace.cli.main import main
from gpumemtrace.errors import SnapshotError
from gpumemtrace.export.formats import ExportOptions
from gpumemtrace.export.memory_viz import write
from gpumemtrace.imports.convert import import_snapshot
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace

TORCH = ("/env/site-packages/torch/nn/modules/linear.py", 134, "forward")
NATIVE = ("/pytorch/aten/src/ATen/native/cuda/Blas.cpp", 300, "at::addmm")
UNKNOWN = ("??", 0, "c10::cuda::malloc")
MODEL = ("/code/model.py", 20, "Net.forward")
TRAIN = ("/code/train.py", 7, "<module>")


def frame(line: tuple[str, int, str]) -> dict[str, object]:
    return dict(zip(("filename", "line", "name"), line, strict=True))


def back(trace: Trace, folder: Path, **options) -> Trace:
    write(trace, folder / "a.pickle", ExportOptions(**options))
    import_snapshot(folder / "a.pickle", folder / "b.gmt", force=True)
    return gpumemtrace.open(folder / "b.gmt")


def small() -> TraceBuilder:
    builder = TraceBuilder()
    builder.phase("forward").add(Kind.SEGMENT_ALLOC, address=2 * MIB, size_bytes=2 * MIB)
    fc = builder.site("layers.0.fc", TORCH, MODEL, TRAIN, root="Net")
    builder.alloc(2 * MIB, 512, site=fc).alloc(2 * MIB + 512, 512)
    builder.alloc(2 * MIB + 1024, 512, site=builder.site("", TRAIN))
    return builder.free(2 * MIB + 512).step(1)


def test_frames_are_the_stack_then_the_module_then_the_step(tmp_path: Path) -> None:
    write(small().trace(), tmp_path / "a.pickle", ExportOptions())
    content = (tmp_path / "a.pickle").read_bytes()
    snapshot = pickle.loads(content)
    step = {"filename": "step", "line": 0, "name": "forward"}
    module = {"filename": "module", "line": 0, "name": "layers.0.fc"}
    expected = [
        [frame(TORCH), frame(MODEL), frame(TRAIN), module, step],
        [step],
        [frame(TRAIN), step],
    ]
    entries = [e for e in snapshot["device_traces"][0] if e["action"] == "alloc"]
    assert [entry["frames"] for entry in entries] == expected
    blocks = [b for b in snapshot["segments"][0]["blocks"] if b["state"] == "active_allocated"]
    assert [block["frames"] for block in blocks] == [expected[0], expected[2]]
    used = {opcode.name for opcode, _, _ in pickletools.genops(content)}
    assert used <= set(VIEWER_OPCODES.split())
    assert _core.load_plain_pickle(content) == snapshot


@pytest.mark.parametrize("steps", [None, (1, 2)])
def test_modules_and_lines_there_and_back(tmp_path: Path, steps) -> None:
    trace = transformer(3).trace(batch_records=40)
    shown = trace.slice(steps=steps) if steps else trace
    again = back(shown, tmp_path)
    assert (
        sum(group.size_bytes for group in again.peak().group_by("site")) == again.peak().size_bytes
    )
    one, other = ({g.name: g.size_bytes for g in t.peak().group_by("site")} for t in (shown, again))
    # What was there before the slice is in no segment of this trace, which has none.
    assert {*one, *other} == {*one}
    assert {n: one[n] for n in one if n[0] != "("} == {n: other[n] for n in one if n[0] != "("}
    assert steps or one == other
    # By module what was made in the forward: a snapshot has no tags of what was there before.
    made = [
        t.sites.module_names[t.sites.module[s]] for t in (again,) for s in np.unique(t.site) if s
    ]
    assert {"layers.2.mlp.down", "head"} <= set(made)


@given(data=st.data())
def test_every_site_comes_back(data, tmp_path_factory) -> None:
    lines = st.tuples(
        st.sampled_from(["/a/x.py", "/b/x.py", "<string>"]),
        st.integers(0, 9),
        st.sampled_from("fg"),
    )
    sites = st.tuples(st.sampled_from(["", "a", "a.b"]), st.lists(lines, max_size=4))
    builder = TraceBuilder()
    chosen = data.draw(st.lists(sites, min_size=1, max_size=12))
    for i, (module, stack) in enumerate(chosen):
        builder.alloc(
            (i + 1) * MIB, 512, site=builder.site(module, *stack) if module or stack else 0
        )
        builder.add(Kind.STATS)
    again = back(builder.trace(), tmp_path_factory.mktemp("sites"))
    found = []
    for site in again.site.tolist():
        place = again.sites.module[site]
        module = again.sites.module_names[place] if place >= 0 else ""
        frames = [(f.file, f.line, f.function) for f in again.sites.stack(site)]
        found.append((module, frames))
    assert found == chosen


def snapshot_of(frames: object) -> dict[str, object]:
    alloc = {"action": "alloc", "addr": 2 * MIB, "size": 512, "stream": 0, "time_us": 1}
    block = {"address": 3 * MIB, "size": 512, "requested_size": 512, "state": "active_allocated"}
    segment = {"address": 3 * MIB, "total_size": 2 * MIB, "stream": 0, "device": 0}
    return {
        "segments": [segment | {"blocks": [block | {"frames": frames}]}],
        "device_traces": [[alloc | {"frames": frames}]],
    }


def test_a_snapshot_of_torchs_keeps_its_frames_as_sites(tmp_path: Path, capsys) -> None:
    frames = [frame(line) for line in (UNKNOWN, NATIVE, TORCH, MODEL, TRAIN)]
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(snapshot_of(frames)))
    assert main(["import", "-q", str(tmp_path / "s.pickle"), "-o", str(tmp_path / "s.gmt")]) == 0
    trace = gpumemtrace.open(tmp_path / "s.gmt")
    assert [str(f) for f in trace.sites.stack(int(trace.site[0]))][-2:] == [
        "model.py:20 Net.forward",
        "train.py:7 <module>",
    ]
    assert main(["peak", "-q", "--by", "site", str(tmp_path / "s.gmt")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["model.py:20", "Net.forward", "1.0", "KiB", "100.0%", "2"] in rows


BACKWARD = (
    "",
    0,
    "torch::autograd::generated::details::mm_mat1_backward(at::Tensor const&, bool)",
)


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        ((UNKNOWN, BACKWARD, NATIVE), "torch::autograd::generated::details::mm_mat1_backward"),
        ((UNKNOWN, NATIVE), "c10::cuda::malloc"),
        ((NATIVE, ("a.cpp", 0, "at::(anonymous namespace)::f(int)")), "Blas.cpp:300 at::addmm"),
        ((UNKNOWN, TORCH, NATIVE), "linear.py:134 forward"),
        ((("", 0, "c10::malloc(void**)"), TORCH, MODEL, NATIVE, TRAIN), "model.py:20 Net.forward"),
    ],
)
def test_the_line_that_is_named_is_of_python_where_there_is_any(tmp_path, stack, line) -> None:
    frames = [frame(one) for one in stack]
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(snapshot_of(frames)))
    import_snapshot(tmp_path / "s.pickle", tmp_path / "s.gmt")
    (group,) = gpumemtrace.open(tmp_path / "s.gmt").peak().group_by("site")
    assert group.name == line


@pytest.mark.parametrize(
    ("frames", "what"),
    [
        ("text", "frames is a str, not a list"),
        ([1], r"frames\[0\] is a int, not a dict"),
        ([{"filename": "a.py", "line": "1", "name": "f"}], "has no filename, line and name"),
        ([{"filename": "a.py", "line": 1}], "has no filename, line and name"),
    ],
)
def test_frames_that_are_none_are_an_error(tmp_path: Path, frames, what) -> None:
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(snapshot_of(frames)))
    with pytest.raises(SnapshotError, match=what):
        import_snapshot(tmp_path / "s.pickle", tmp_path / "s.gmt")


def test_odd_lines_and_very_deep_stacks(tmp_path: Path) -> None:
    deep = [frame(MODEL) | {"line": -1}] + [frame(TRAIN)] * 5000
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(snapshot_of(deep)))
    import_snapshot(tmp_path / "s.pickle", tmp_path / "s.gmt")
    trace = gpumemtrace.open(tmp_path / "s.gmt")
    stack = trace.sites.stack(int(trace.site[0]))
    assert (stack[0].line, len(stack)) == (0, 256)
