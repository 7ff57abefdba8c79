"""GIVEN values with arrays, WHEN they are packed, THEN a slow decoder reads them back."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumemtrace.analysis.timeline import build_timeline
from gpumemtrace.plot.style import phase_colors
from gpumemtrace.report.line_rows import PARTS, rows_of_columns
from gpumemtrace.report.packing import pack
from gpumemtrace.report.palette import BACKGROUNDS, LINES, contrast, readable


def unpack(text: str) -> Any:
    """What static/core.js does, a byte at a time."""
    raw = zlib.decompress(base64.b64decode(text))
    size = int.from_bytes(raw[:4], "little")
    stream = raw[4 + size :]

    def whole(entry: dict[str, Any]) -> Any:
        if set(entry) != {"$"}:
            return entry
        place, count, scale = entry["$"]
        values, value = [], 0
        for _ in range(count):
            zigzag, shift = 0, 0
            while True:
                byte = stream[place]
                place += 1
                zigzag |= (byte & 127) << shift
                shift += 7
                if not byte & 128:
                    break
            value += (zigzag >> 1) ^ -(zigzag & 1)
            values.append(value * scale)
        return values

    return json.loads(raw[4 : 4 + size], object_hook=whole)


EXACT_IN_JAVASCRIPT = st.integers(-(2**53), 2**53)


@given(st.lists(EXACT_IN_JAVASCRIPT | st.integers(-3, 300), max_size=50), st.sampled_from([1, 512]))
def test_arrays_come_back(values, factor):
    array = np.array([value // factor * factor for value in values], np.int64)
    assert unpack(pack({"a": [array, "text"], "b": None})) == {
        "a": [array.tolist(), "text"],
        "b": None,
    }


def test_steady_lines_take_little():
    line = np.repeat(np.array([7 << 30, 9 << 30], np.int64), 50_000)
    assert len(pack(line)) < 300


def test_what_json_does_not_know_is_refused():
    with pytest.raises(TypeError, match="1-d integer"):
        pack({"a": np.zeros(3)})
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack({"a": float("nan")})


@st.composite
def columns(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Columns of first, lowest, highest, last in which each begins with the last of the other."""
    count = draw(st.integers(1, 12))
    lines = {}
    for name in ("allocated", "reserved"):
        rows, carried = [], draw(st.integers(0, 3))
        for _ in range(count):
            inside = draw(st.lists(st.integers(0, 9), max_size=3))
            values = [carried, *inside]
            rows.append([carried, min(values), max(values), values[-1]])
            carried = values[-1]
        lines[name] = np.array(rows, np.int64)
    return lines


@given(columns())
def test_rows_tell_every_column(lines):
    rows = rows_of_columns(lines)
    assert (np.diff(rows.place) > 0).all()
    for name, line in lines.items():
        carried = line[0, 0]
        for column, (first, low, high, last) in enumerate(line.tolist()):
            inside = (rows.place // PARTS) == column
            values = [carried, *rows.values[name][inside].tolist()]
            assert (values[0], min(values), max(values), values[-1]) == (first, low, high, last)
            carried = values[-1]


def test_a_column_without_a_change_has_no_row():
    still = np.full((100, 4), 5, np.int64)
    assert rows_of_columns({"allocated": still}).place.tolist() == [0, 3, 399]


def test_a_timeline_has_its_peak_in_its_rows():
    import recorded

    trace, truth = recorded.load("resnet")
    rows = rows_of_columns(build_timeline(trace, columns=5000).devices[0].lines)
    assert rows.values["allocated"].max() == truth["peak"]["allocated_bytes.all.peak"]


@pytest.mark.parametrize("theme", BACKGROUNDS)
def test_lines_stand_out_from_the_page(theme):
    names = ["init", "data", "forward", "backward", "optimizer", "zero_grad", "eval", *"abcdefg"]
    colors = [*phase_colors(names).values(), *(str(line["color"]) for line in LINES.values())]
    for color in colors:
        assert contrast(readable(color, on=BACKGROUNDS[theme]), BACKGROUNDS[theme]) >= 3
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
