"""`gpumemtrace report`: one file, nothing overwritten, small however long the run."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scenarios

from gpumemtrace.cli.main import main
from gpumemtrace.report.page import render_page
from gpumemtrace.report.results import collect
from gpumemtrace.trace import Trace


@pytest.fixture
def trace_file(tmp_path):
    scenarios.lost_events().trace().save(tmp_path / "train.gmt")
    return tmp_path / "train.gmt"


def test_writes_one_page_beside_the_trace(trace_file, capsys):
    assert main(["report", str(trace_file)]) == 0
    page = trace_file.with_suffix(".html")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert f"Wrote {page}" in capsys.readouterr().out
    assert main(["report", str(trace_file)]) == 1
    assert "overwrite with -f" in capsys.readouterr().err
    assert main(["report", str(trace_file), "-f", "-q"]) == 0
    assert capsys.readouterr().out == ""


def test_a_name_that_no_browser_knows_is_refused(trace_file, capsys):
    assert main(["report", str(trace_file), "-o", "report.pdf"]) == 1
    assert "must end with .html" in capsys.readouterr().err


def test_nothing_in_the_page_points_outside(trace_file):
    import gpumemtrace

    page = render_page(collect(gpumemtrace.open(trace_file)))
    outside_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"\b(src|href)\s*=\s*[\"'](?!#)", outside_scripts)
    assert not re.search(r"url\(|@import", outside_scripts)
    assert "default-src 'none'" in page
    assert page.count("<script") == page.count("</script>") == 3
    assert "Permission is hereby granted" in page  # uPlot's licence goes with it


def test_a_short_run_has_finer_lines():
    short = collect(scenarios.two_devices().trace()).timeline.devices[0].lines["allocated"]
    asked = collect(scenarios.two_devices().trace(), columns=1000).timeline.devices[0].lines
    assert (len(short), len(asked["allocated"])) == (1 << 18, 1000)


def test_the_page_of_a_run_without_any_pattern_is_small():
    """C67: half a million events, each block of another size, at times that never repeat."""
    random = np.random.default_rng(0)
    count = 500_000
    # Blocks live for up to 500 others: their frees come in any order.
    birth = np.arange(count // 2, dtype=np.float64)
    death = birth + random.exponential(100, count // 2).clip(0.5, 500)
    order = np.argsort(np.concatenate([birth, death]), kind="stable")
    block = np.tile(np.arange(count // 2), 2)[order]
    is_alloc = order < count // 2
    size = random.integers(1, 64 << 20, count // 2)
    trace = Trace.from_events(
        {
            "time_ns": np.cumsum(random.integers(1, 100_000, count)),
            "kind": np.where(is_alloc, 1, 2),
            "address": (block + 1) << 30,
            "size_bytes": np.where(is_alloc, size[block], 0),
            "stream": np.zeros(count, int),
            "device": np.zeros(count, int),
            "thread": np.ones(count, int),
            "step": np.arange(count) // 100,
            "phase": np.arange(count) // 20 % 5,
        },
        phase_names=["data", "forward", "backward", "optimizer", "zero_grad"],
    )
    assert len(render_page(collect(trace))) < 5_000_000
