"""GIVEN modules and call sites, WHEN memory is shown as a tree, THEN nothing of it is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from synthetic import MIB, TraceBuilder, event_columns

from gpumemtrace.analysis.owner_tree import OwnerNode, OwnerTree, find_owner_trees
from gpumemtrace.schema import Category, StackState
from gpumemtrace.trace import Trace

TORCH = ("/env/site-packages/torch/nn/modules/linear.py", 134, "forward")
MODEL = ("/code/model.py", 20, "Net.forward")
TRAIN = ("/code/train.py", 7, "<module>")
NAMES = ["a", "a.b", "a.b.c", "d", "AdamW.param_groups[0]", "loss.<locals>.f (compiled)"]


def leaves(node: OwnerNode, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Each way to a node without children, and its bytes."""
    if not node.children:
        yield path, node.size_bytes
    for child in node.children:
        yield from leaves(child, (*path, child.name))


def trees(trace: Trace, device: int = 0) -> dict[tuple[str, str], OwnerTree]:
    (found,) = [d for d in find_owner_trees(trace) if d.device == device]
    return {(tree.by, tree.of): tree for tree in found.trees}


def small() -> TraceBuilder:
    builder = TraceBuilder()
    builder.alloc(1 * MIB, MIB)  # a parameter
    builder.tag(1 * MIB, "layers.0.fc.weight", Category.PARAMETER)
    fc = builder.site("layers.0.fc", TORCH, MODEL, TRAIN, root="Net")
    builder.alloc(2 * MIB, 2 * MIB, site=fc)
    builder.alloc(4 * MIB, MIB, site=builder.site("", MODEL, TRAIN, root="Net"))
    builder.free(4 * MIB)
    builder.alloc(5 * MIB, 2 * MIB, site=builder.site("layers.1", root="Net"))
    return builder


def test_modules_by_their_paths() -> None:
    found = trees(small().trace())
    assert set(found) == {(by, of) for by in ("module", "site") for of in ("peak", "allocated")}
    assert dict(leaves(found["module", "peak"].root)) == {
        ("Net", "layers", "0", "fc", "parameter"): MIB,
        ("Net", "layers", "0", "fc", "unknown"): 2 * MIB,
        ("Net", "layers", "1", "unknown"): 2 * MIB,
    }
    assert sum(size for _, size in leaves(found["module", "allocated"].root)) == 6 * MIB
    assert ("no module", "parameter") in dict(leaves(found["module", "allocated"].root))


def test_lines_by_who_called_whom() -> None:
    found = trees(small().trace())
    assert dict(leaves(found["site", "peak"].root)) == {
        ("train.py:7 <module>", "model.py:20 Net.forward", "unknown"): 2 * MIB,
        ("stacks were off", "parameter"): MIB,
        ("stacks were off", "unknown"): 2 * MIB,
    }
    allocated = dict(leaves(found["site", "allocated"].root))
    at = ("train.py:7 <module>", "model.py:20 Net.forward")
    assert sum(size for path, size in allocated.items() if path[:2] == at) == 3 * MIB


def test_files_of_one_name_are_told_apart() -> None:
    builder = TraceBuilder()
    for i, folder in enumerate(("/code/a", "/code/b")):
        frame = (f"{folder}/__init__.py", 1, "f")
        builder.alloc((i + 1) * MIB, MIB, site=builder.site("", frame))
    trace = builder.trace()
    assert {g.name for g in trace.peak().group_by("site")} == {
        "a/__init__.py:1 f",
        "b/__init__.py:1 f",
    }


def test_very_deep_calls_keep_the_line_that_allocates() -> None:
    builder = TraceBuilder()
    frames = [(f"/code/{i}.py", 1, "f") for i in range(900)]
    builder.alloc(MIB, MIB, site=builder.site("", *frames))
    ((path, size),) = leaves(trees(builder.trace())["site", "peak"].root)
    assert (path[0], path[-2], size) == ("899.py:1 f", "0.py:1 f", MIB)
    assert len(path) < 60


def test_a_backward_without_python_stands_where_its_forward_was_called() -> None:
    builder = TraceBuilder()
    builder.alloc(MIB, MIB, site=builder.site("", MODEL, TRAIN, state=StackState.FORWARD))
    ((path, _),) = leaves(trees(builder.trace())["site", "peak"].root)
    assert path[:2] == ("train.py:7 <module>", "model.py:20 Net.forward")


@given(columns=event_columns(min_events=1, max_events=60), data=st.data(), least=st.floats(0, 1))
def test_trees_add_up_to_the_peak_and_to_all_requests(columns, data, least) -> None:
    count = len(columns["kind"])
    columns["kind"][0], columns["size_bytes"][0], columns["device"][0] = 1, 512, 0
    columns["site"] = np.array(
        data.draw(st.lists(st.integers(0, 6), min_size=count, max_size=count)), np.uint32
    )
    columns.pop("phase")
    trace = Trace.from_events(columns, module_names=NAMES)
    object.__setattr__(trace._source, "batch_records", data.draw(st.integers(1, 40)))
    for device in trace.active_devices:
        found = trees(trace, device)
        peak, allocated = (found["module", of].root for of in ("peak", "allocated"))
        assert peak.size_bytes == trace.peak(device=device).size_bytes
        by_module: Counter[str] = Counter()
        mine = (columns["kind"] == 1) & (columns["device"] == device)
        for site, size in zip(columns["site"][mine], columns["size_bytes"][mine], strict=True):
            by_module[NAMES[site - 1] if site else "no module"] += int(size)
        assert allocated.size_bytes == sum(by_module.values())
        assert allocated.blocks == np.count_nonzero(mine)
        shown: Counter[str] = Counter()
        for path, size in leaves(allocated):
            shown[".".join(path[:-1])] += size
        assert +shown == +by_module
        for root in (peak, allocated):
            check_sums(root)
            merged = root.merged(least * root.size_bytes)
            check_sums(merged)
            assert (merged.size_bytes, merged.blocks) == (root.size_bytes, root.blocks)


def check_sums(node: OwnerNode) -> None:
    if node.children:
        assert node.size_bytes == sum(child.size_bytes for child in node.children)
        assert node.blocks == sum(child.blocks for child in node.children)
        for child in node.children:
            check_sums(child)


def test_without_modules_and_call_sites_there_is_no_tree() -> None:
    (device,) = find_owner_trees(TraceBuilder().alloc(MIB, MIB).trace())
    assert device.trees == ()
    assert find_owner_trees(TraceBuilder().phase("init").trace()) == ()
