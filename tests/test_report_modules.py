"""GIVEN a report of a trace with modules, WHEN it is opened, THEN it shows whose memory it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import recorded
from browser import Opened, opened, write_page
from owned_traces import transformer

from gpumemtrace.cli.main import main
from gpumemtrace.report.results import collect
from gpumemtrace.report.sections import modules
from gpumemtrace.report.sections import peak as peak_section
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


BLOCKS = "[...document.querySelectorAll('#peak table')].at(-1)"


def test_the_blocks_in_use_tell_whose_they_are(page: Opened) -> None:
    heads = page.ask(f"[...{BLOCKS}.querySelectorAll('thead button')].map(b => b.textContent)")
    assert heads == ["For", "Module", "Bytes", "Blocks", "Each", "Born in", "Step", "Line"]
    page.page.locator("#peak input[type=search]").last.fill("layers.7.mlp.up")
    rows = page.ask(
        f"[...{BLOCKS}.querySelectorAll('tbody tr')].map(r => r.innerText.split('\\t'))"
    )
    assert sorted((row[0].strip(), row[1], row[-1]) for row in rows) == [
        ("activation", "layers.7.mlp.up", "model.py:41 Block.forward"),
        ("gradient", "layers.7.mlp.up", "model.py:73 Net.forward"),
        ("parameter", "layers.7.mlp.up", "(stacks were off)"),
    ]
    page.page.locator("#peak input[type=search]").last.fill("")
    module = page.page.locator("#peak th button", has_text="Module").last
    first = f"{BLOCKS}.querySelector('tbody td').innerText"
    module.click()
    assert page.ask(first) == "embed"
    module.click()
    assert page.ask(first) == "no module"
    assert not page.complaints


def test_the_rows_of_blocks_add_up_by_owner() -> None:
    (device,) = peak_section.gather(collect(TRACE))["devices"]
    rows = device["rows"]
    assert len(rows["size_bytes"]) == device["rows_in_all"] > 300
    total = rows["size_bytes"] * rows["count"]
    for by in ("module", "site"):
        names, place = rows["owners"][by]["names"], rows["owners"][by]["place"]
        found = {name: int(total[place == i].sum()) for i, name in enumerate(names)}
        assert found == {group.name: group.size_bytes for group in TRACE.peak().group_by(by)}


def test_only_owners_that_the_trace_tells_are_columns() -> None:
    (device,) = peak_section.gather(collect(transformer(3, stacks=False).trace()))["devices"]
    assert set(device["rows"]["owners"]) == {"module"}
    plain = recorded.load("gpt2")[0].slice(steps=(10, 11))
    (device,) = peak_section.gather(collect(plain))["devices"]
    assert device["rows"]["owners"] == {}


@pytest.mark.parametrize(("by", "tree"), [("module", "module"), ("site", "call site")])
def test_it_opens_with_the_grouping_asked_for(chromium, tmp_path: Path, by: str, tree: str) -> None:
    TRACE.save(tmp_path / "run.gmt")
    assert main(["report", "-q", str(tmp_path / "run.gmt"), "--by", by]) == 0
    with opened(chromium, tmp_path / "run.html") as page:
        assert page.ask("document.querySelector('#peak .choices :checked').value") == by
        name, *_ = (group.name for group in TRACE.peak().group_by(by))
        assert name in page.ask("document.querySelector('#peak .groups tbody tr').innerText")
        shown = page.ask(f"{SECTION}.querySelector('.choices :checked').parentNode.textContent")
        assert shown == f"the peak, by {tree}"
        page.page.get_by_label("phase of birth").check()
        assert "forward" in page.ask("document.querySelector('#peak .groups tbody').innerText")
        assert not page.complaints


def test_what_is_not_told_is_no_grouping(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformer(1, stacks=False).trace().save(tmp_path / "run.gmt")
    assert main(["report", str(tmp_path / "run.gmt"), "--by", "site"]) == 1
    assert "does not tell call sites: record with --stacks" in capsys.readouterr().err
    assert not (tmp_path / "run.html").exists()


def test_without_modules_it_says_how_to_record_them() -> None:
    found = modules.gather(collect(recorded.load("gpt2")[0].slice(steps=(10, 11))))
    assert "gpumemtrace run --modules, or --stacks python" in found["unknown"]
