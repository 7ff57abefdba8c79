"""Trace files for tests: any events, written in any way."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpumemtrace.schema import COLUMNS
from gpumemtrace.trace_file import Columns, FileWriter, Names, ThreadName

RECORD = {"pid": 1, "torch": {"version": "2.11.0"}}
NAMES = Names(
    phases={1: (0, "forward"), 2: (1, "Schicht 2 ☃")},
    strings={1: "a mark"},
    threads={1: ThreadName(os_tid=4242, name="main")},
)


@st.composite
def any_columns(draw: st.DrawFn, max_size: int = 60) -> Columns:
    """Columns of equal length holding anything that their dtypes can."""
    count = draw(st.integers(0, max_size))
    few = draw(st.booleans())  # few distinct values: other encodings
    columns: Columns = {}
    for name, dtype in COLUMNS.items():
        limits = np.iinfo(dtype)
        values = st.integers(limits.min, limits.max)
        if few:
            values = st.sampled_from(draw(st.lists(values, min_size=1, max_size=4)))
        columns[name] = draw(hnp.arrays(dtype, count, elements=values))
    return columns


@st.composite
def looping_columns(draw: st.DrawFn) -> Columns:
    """A few steps, each like one before but for some rows put in, left out or changed."""
    step = draw(any_columns(max_size=12))
    rows = list(zip(*(values.tolist() for values in step.values()), strict=True))
    strange = draw(any_columns(max_size=6))
    strangers = list(zip(*(values.tolist() for values in strange.values()), strict=True))
    steps = []
    for _ in range(draw(st.integers(1, 6))):
        for _ in range(draw(st.integers(0, 2)) if rows else 0):
            at = draw(st.integers(0, len(rows) - 1))
            other = [draw(st.sampled_from(strangers))] if strangers else []
            rows[at : at + draw(st.integers(0, 1))] = other
            if not rows:
                break
        steps += rows
    values = zip(*steps, strict=True) if steps else [[] for _ in COLUMNS]
    return {
        name: np.array(column, dtype)
        for (name, dtype), column in zip(COLUMNS.items(), values, strict=True)
    }


def training_columns(count: int) -> Columns:
    """A loop that allocates and frees, as training does."""
    columns = {name: np.zeros(count, dtype) for name, dtype in COLUMNS.items()}
    rows = np.arange(count)
    columns["time_ns"][:] = 1000 * rows + rows % 7
    columns["kind"][:] = 1 + rows % 2
    columns["address"][:] = 0x7F0000000000 + 512 * (rows // 2 % 10)
    columns["size_bytes"][:] = np.where(rows % 2 == 0, 512 * (rows % 5 + 1), 0)
    columns["thread"][:] = 1
    return columns


def rows_of(columns: Columns, rows: slice | list[int]) -> Columns:
    return {name: values[rows] for name, values in columns.items()}


def write_in_pieces(
    path: Path,
    columns: Columns,
    piece: int,
    *,
    close: bool = True,
    codec: int = 1,
    events_per_keyframe: int = 20,
) -> None:
    """A file with a chunk of events per ``piece`` rows, and other chunks between some of them."""
    writer = FileWriter(path, overwrite=True, codec=codec, events_per_keyframe=events_per_keyframe)
    writer.write_metadata(RECORD)
    for start in range(0, len(columns["kind"]), piece):
        writer.append(rows_of(columns, slice(start, start + piece)))
        if start % 2:
            writer.flush()
        else:  # so does a chunk of another type
            writer.write_metadata({"rows": start + piece})
    writer.write_names(NAMES)
    if close:
        writer.close({"reason": "end"})


def assert_equal(got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert got.keys() == expected.keys()
    for name, values in expected.items():
        assert got[name].dtype == values.dtype
        np.testing.assert_array_equal(got[name], values, err_msg=name)
