"""`gpumemtrace report`: one file, nothing overwritten, small however long the run."""

from __future__ import annotations

import re

import pytest
import scenarios

from gpumemtrace.cli.main import main
from gpumemtrace.report.page import render_page
from gpumemtrace.report.results import collect


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
