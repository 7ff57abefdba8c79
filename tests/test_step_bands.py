"""GIVEN a long series over steps, WHEN it is made as wide as a picture, THEN no extreme is lost."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpumemtrace.analysis.step_bands import (
    find_highest_rows,
    find_highest_stretches,
    find_step_bands,
)

SERIES = hnp.arrays(
    np.int64, st.tuples(st.integers(0, 60), st.integers(1, 3)), elements=st.integers(-1, 9)
)


def runs_of(count: int, rows: int) -> list[range]:
    rows = min(count, rows)
    edges = [i * count // rows for i in range(rows)] + [count] if rows else []
    return [range(a, b) for a, b in pairwise(edges)]


@given(values=SERIES, rows=st.integers(1, 80))
def test_bands_are_those_of_a_plain_search(values, rows):
    number = np.arange(7, 7 + len(values))
    bands = find_step_bands(number, values, most_rows=rows)
    runs = runs_of(len(values), rows)
    assert len(bands.number) == len(runs)
    assert bands.is_exact == (len(runs) == len(values))
    for row, run in enumerate(runs):
        assert bands.number[row] - 7 in run
        for column in range(values.shape[1]):
            known = [int(v) for v in values[run.start : run.stop, column] if v >= 0]
            found = [band[row, column] for band in (bands.low, bands.median, bands.high)]
            if known:
                assert found == [min(known), np.median(known), max(known)]
            else:
                assert np.isnan(found).all()


@given(total=hnp.arrays(np.int64, st.integers(0, 60)), rows=st.integers(1, 80))
def test_highest_rows_are_those_of_a_plain_search(total, rows):
    number = np.arange(7, 7 + len(total))
    found = find_highest_rows(number, total, most_rows=rows)
    runs = runs_of(len(total), rows)
    assert found.tolist() == [max(run, key=lambda i: (total[i], -i)) for run in runs]
    begin, shown = find_highest_stretches(number, total, most_rows=rows)
    assert begin.tolist() == [7 + run.start for run in runs]
    assert shown.tolist() == found.tolist()


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    rows=st.integers(1, 80),
    data=st.data(),
)
def test_a_row_of_many_steps_is_as_wide_as_they_are(counts, rows, data):
    """WHERE rows stand for several steps, each run shows the highest row that begins in it."""
    counts = [*counts, 1]  # the newest steps are told one by one
    total = data.draw(hnp.arrays(np.int64, len(counts), elements=st.integers(0, 9)))
    number = np.cumsum([3, *counts[:-1]])
    begin, found = find_highest_stretches(number, total, most_rows=rows)
    assert begin[0] == 3
    assert (np.diff(begin) > 0).all()
    every = range(3, 3 + sum(counts))
    shown = found[np.searchsorted(begin, list(every), side="right") - 1]
    true = np.repeat(total, counts)
    width = -(-len(every) // min(len(every), rows))
    for place in range(len(every)):
        near = true[max(place - width, 0) : place + width + 1]
        assert near.min() <= total[shown[place]] <= near.max()
    assert total[found].max() == total.max()


def test_a_line_breaks_where_steps_are_missing():
    number = np.concatenate([np.arange(100), np.arange(400, 500)])
    bands = find_step_bands(number, number[:, np.newaxis], most_rows=50)
    assert bands.number.tolist() == [*range(4, 100, 10), 249, *range(404, 500, 10)]
    assert np.flatnonzero(np.isnan(bands.median[:, 0])).tolist() == [10]
    few = find_step_bands(np.array([3, 4, 90]), np.array([[1], [2], [3]]), most_rows=50)
    assert few.number.tolist() == [3, 4, 47, 90]
    assert few.median[:, 0].tolist()[:2] == [1, 2]
    assert np.isnan(few.median[2, 0])
    assert few.is_exact


def test_no_rows_is_an_error():
    with pytest.raises(ValueError, match="most_rows must be at least 1"):
        find_highest_rows(np.arange(3), np.zeros(3, np.int64), most_rows=0)
