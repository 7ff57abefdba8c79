"""GIVEN a program that makes marks, WHEN its report is opened, THEN they hide nothing."""

from __future__ import annotations

import pytest
from browser import opened, write_page
from synthetic import MIB, TraceBuilder

from gpumemtrace.schema import Kind


@pytest.mark.parametrize(("marks", "in_the_middle"), [(3, True), (60, False)])
def test_many_marks_leave_the_lines_to_be_seen(chromium, tmp_path, marks, in_the_middle):
    builder = TraceBuilder(strings={1: "an epoch"}).alloc(512, 50 * MIB)
    for _ in range(marks):
        builder.add(Kind.MARK, size_bytes=1, device=-1).alloc(1 << 30, MIB, after_ns=10**6)
        builder.free(1 << 30, after_ns=10**6)
    with opened(chromium, write_page(builder.trace(), tmp_path)) as found:
        middle, ground = found.ask(
            """[0.5, 0.98].map((part) => {
                const over = document.querySelector("#timeline .u-over");
                const canvas = document.querySelector("#timeline .uplot canvas");
                const scale = canvas.width / canvas.offsetWidth;
                const context = canvas.getContext("2d");
                const top = scale * (over.offsetTop + over.offsetHeight * part);
                const { data } = context.getImageData(0, top - 10, canvas.width, 12);
                const style = getComputedStyle(document.documentElement);
                const note = style.getPropertyValue("--note").trim();
                const hue = note.match(/[0-9a-f]{2}/gi).map((x) => parseInt(x, 16));
                const near = (i) => hue.every((value, k) => Math.abs(data[i + k] - value) < 40);
                let count = 0;
                for (let i = 0; i < data.length; i += 4) count += data[i + 3] > 60 && near(i);
                return count;
            })"""
        )
    assert ground >= marks
    assert (middle > 0) == in_the_middle
