"""GIVEN a long series over steps, WHEN it is made as wide as a picture, THEN no extreme is lost."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpumemtrace.analysis.step_bands import find_highest_rows, find_step_bands

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
    found = find_highest_rows(total, most_rows=rows).tolist()
    assert found == [max(run, key=lambda i: (total[i], -i)) for run in runs_of(len(total), rows)]


def test_no_rows_is_an_error():
    with pytest.raises(ValueError, match="most_rows must be at least 1"):
        find_highest_rows(np.zeros(3, np.int64), most_rows=0)
