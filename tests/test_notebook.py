"""GIVEN a trace or a result, WHEN a notebook shows it, THEN it is a small table of escaped text."""

from __future__ import annotations

import html
from html.parser import HTMLParser

import pytest
import recorded
import scenarios
from synthetic import MIB, TraceBuilder

import gpumemtrace
from gpumemtrace.analysis.summary import summarize
from gpumemtrace.html_tables import MOST_ROWS, html_table

HOSTILE = "<script>alert('x')</script>\"&"


class Parsed(HTMLParser):
    """Tags and texts; what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def hostile():
    builder = TraceBuilder(
        run_record={"script": HOSTILE, "torch": HOSTILE, "devices": [{"index": 0, "name": HOSTILE}]}
    )
    builder.phases[1] = (0, HOSTILE)
    for step in range(30):
        builder.add(14, size_bytes=1, flags=1, device=-1).alloc(step << 21, MIB)
        builder.step(step + 1, after_ns=10**6 if step != 20 else 10**8)
    return builder.trace()


SHOWN = {
    "trace": lambda trace: trace,
    "summary": summarize,
    "growth": lambda trace: trace.growth(),
    "peak": lambda trace: trace.peak(),
    "step_times": lambda trace: trace.step_times(),
    "lifetimes": lambda trace: trace.lifetimes(),
}


@pytest.mark.parametrize("name", SHOWN)
def test_text_is_escaped_and_the_table_small(name):
    shown = SHOWN[name](hostile())._repr_html_()
    parsed = Parsed(shown)
    assert set(parsed.tags) <= {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}
    assert parsed.tags.count("tr") <= MOST_ROWS + 1
    assert "<script" not in shown
    assert len(shown) < 20_000


def test_they_say_what_matters():
    trace, _ = recorded.load("gpt2")
    peak = trace.peak()._repr_html_()
    assert "allocated peak of cuda:0: 3.131 GiB in backward, step 1" in peak
    assert "optimizer_state" in peak and "%" in peak
    assert "backward" in summarize(trace)._repr_html_()
    assert "stable" in trace.growth()._repr_html_()
    assert "60 steps: median" in trace.step_times()._repr_html_()
    assert "the first 12" in trace.lifetimes()._repr_html_()


def test_a_trace_shows_itself_without_being_read(tmp_path, monkeypatch):
    scenarios.out_of_memory().trace().save(tmp_path / "x.gmt")
    import gpumemtrace
    from gpumemtrace.records import FileSource

    trace = gpumemtrace.open(tmp_path / "x.gmt")
    monkeypatch.setattr(FileSource, "batches", lambda self: pytest.fail("it was read"))
    shown = trace._repr_html_()
    assert "Tesla T4: there was no GPU" in html.unescape(shown)
    assert str(tmp_path / "x.gmt") in shown


def test_a_long_table_is_cut_and_says_so():
    shown = html_table("t", ["a"], [(str(i),) for i in range(1000)])
    assert "showing 12 of 1,000 rows" in shown
    assert Parsed(shown).tags.count("tr") == 13


def test_completion_shows_what_is_public():
    assert dir(gpumemtrace) == sorted(gpumemtrace.__all__)
    assert {"install", "open", "phase"} <= set(dir(gpumemtrace))
    assert all(hasattr(gpumemtrace, name) for name in dir(gpumemtrace))
