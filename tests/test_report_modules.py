"""GIVEN a report of a trace with modules, WHEN it is opened, THEN it shows whose memory it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import recorded
from browser import Opened, opened, write_page
from owned_traces import transformer

from gpumemtrace.report.results import collect
from gpumemtrace.report.sections import modules
from gpumemtrace.units import format_bytes

TRACE = transformer(43).trace()
SECTION = "document.querySelector('#modules')"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory) -> Path:
    return write_page(TRACE, tmp_path_factory.mktemp("report"))


@pytest.fixture
def page(chromium, page_file) -> Iterator[Opened]:
    with opened(chromium, page_file) as found:
        yield found


def readout(page: Opened) -> str:
    return str(page.ask(f"{SECTION}.querySelector('.icicle-readout').textContent"))


def test_the_sums_are_those_of_the_peak() -> None:
    (device,) = modules.gather(collect(TRACE))["devices"]
    peak = TRACE.peak().size_bytes
    assert {(tree["by"], tree["of"]) for tree in device["trees"]} == {
        (by, of) for by in ("module", "site") for of in ("peak", "allocated")
    }
    for tree in device["trees"]:
        expected = peak if tree["of"] == "peak" else int(TRACE.size_bytes.sum())
        assert leaves(tree["root"]) == tree["root"]["bytes"] == expected
    for groups in device["groups"].values():
        assert sum(group["bytes"] for group in groups) == peak


def leaves(node: dict) -> int:
    children = node.get("children", ())
    return sum(map(leaves, children)) if children else node["bytes"]


def test_boxes_by_mouse_and_keyboard(page: Opened) -> None:
    peak = TRACE.peak()
    whole = f"all · {format_bytes(peak.size_bytes)} · 100.0 % · {len(peak.blocks)} blocks"
    assert readout(page) == whole
    icicle = page.page.locator("#modules .icicle")
    icicle.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
        icicle.press(key)
    assert readout(page).startswith("Net › layers › 1 · ")
    assert page.ask(f"{SECTION}.querySelectorAll('.icicle .current').length") == 1
    icicle.press("Enter")
    width = "Number.parseFloat({}.querySelector('.icicle .current').style.width)"
    assert page.ask(width.format(SECTION)) == 100
    assert page.ask(f"{SECTION}.querySelector('.icicle').innerText").count("q_proj") == 1
    icicle.press("0")
    page.page.locator("#modules .icicle .box", has_text="embed").first.click()
    assert readout(page).startswith("Net › embed · ")
    assert not page.complaints


def test_lines_and_all_that_was_allocated(page: Opened) -> None:
    page.page.get_by_label("all that was allocated, by call site").check()
    assert "train.py:31 <module>" in page.ask(f"{SECTION}.querySelector('.icicle').innerText")
    total = format_bytes(int(TRACE.size_bytes.sum()))
    assert total in readout(page)
    assert "allocations" in readout(page)


def test_the_table_is_filtered(page: Opened) -> None:
    page.page.locator("#modules input[type=search]").first.fill("layers.7.mlp")
    text = page.ask(f"{SECTION}.querySelector('table').innerText")
    assert "layers.7.mlp.up" in text
    assert "layers.8" not in text


def test_without_modules_it_says_how_to_record_them() -> None:
    found = modules.gather(collect(recorded.load("gpt2")[0].slice(steps=(10, 11))))
    assert "gpumemtrace run --modules, or --stacks python" in found["unknown"]
