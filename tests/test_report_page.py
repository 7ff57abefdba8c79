"""GIVEN a report, WHEN a real browser opens it, THEN it shows the trace and asks nobody."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import recorded
import scenarios
from browser import Opened, opened, write_page
from fragmented import train_and_eval
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.analysis.timeline import build_timeline
from gpumemtrace.schema import Kind
from gpumemtrace.units import format_bytes, format_duration

HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'>&amp;{{data}}"
)


@pytest.fixture(scope="module")
def gpt2_page(tmp_path_factory) -> Path:
    return write_page(recorded.load("gpt2")[0], tmp_path_factory.mktemp("report"))


@pytest.fixture
def gpt2(chromium, gpt2_page) -> Iterator[Opened]:
    with opened(chromium, gpt2_page) as found:
        yield found


def hostile() -> TraceBuilder:
    """Every text that a trace holds, with markup in it."""
    builder = TraceBuilder(
        strings={1: HOSTILE},
        run_record={
            "script": HOSTILE,
            "argv": [HOSTILE, "--x"],
            "torch": HOSTILE,
            HOSTILE: {HOSTILE: HOSTILE},
            "devices": [{"index": 0, "name": HOSTILE, "memory_bytes": 1 << 30}],
            "simulated": {
                "gpu": HOSTILE,
                "approximations": [{"name": HOSTILE, "calls": 1, "what": HOSTILE}, HOSTILE],
            },
        },
    )
    builder.phase("").phases[1] = (0, HOSTILE)
    builder.phases[2] = (0, "__proto__")
    for step in range(4):
        builder.add(Kind.PHASE, size_bytes=1, flags=1, device=-1).alloc(512, 3 * MIB)
        builder.add(Kind.PHASE, size_bytes=2, flags=1, device=-1).alloc(1 << 30, 5 * MIB)
        builder.add(Kind.MARK, size_bytes=1, device=-1).free(512).free(1 << 30).step(step + 1)
    return builder.add(Kind.ALLOC_FAILED, size_bytes=1 << 30)


PAGES = {
    "out_of_memory": lambda: scenarios.out_of_memory().trace(),
    "died": lambda: scenarios.died_of_oom().trace(),
    "lost_events": lambda: scenarios.lost_events().trace(),
    "two_devices": lambda: scenarios.two_devices().trace(),
    "hostile": lambda: hostile().trace(),
    "one_event": lambda: TraceBuilder().alloc(512, MIB).trace(),
    "nothing": lambda: TraceBuilder().trace(),
}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_any_trace_opens_without_a_complaint_or_a_request(chromium, tmp_path, name, scheme):
    file = write_page(PAGES[name](), tmp_path)
    with opened(chromium, file, color_scheme=scheme) as found:
        found.page.wait_for_timeout(100)
        assert found.complaints == []
        assert found.requests == [file.as_uri()]
        named = found.page.locator("main > section[aria-labelledby]")
        assert named.count() == len(found.ask("report.sections"))
        assert not re.search(r"\b(null|undefined|NaN)\b", found.page.inner_text("main"))


def test_names_with_markup_are_text(chromium, tmp_path):
    with opened(chromium, write_page(hostile().trace(), tmp_path)) as found:
        assert found.page.evaluate("window.hacked") is None
        assert found.page.locator("main img").count() == 0
        assert found.page.locator("h1").inner_text() == HOSTILE.rsplit("/", 1)[-1]
        assert HOSTILE in found.page.locator("#phases tbody").first.inner_text()
        assert "__proto__" in found.page.locator("#phases tbody").first.inner_text()
        assert found.page.title().endswith("GPU memory")


def test_a_connection_is_forbidden_by_the_page_itself(gpt2):
    asked = gpt2.page.evaluate("fetch('http://127.0.0.1:9/x').then(() => 'sent', () => 'refused')")
    assert asked == "refused"
    assert any("Content Security Policy" in complaint for complaint in gpt2.complaints)


def test_the_peak_on_the_page_is_the_trace_s(gpt2):
    trace, truth = recorded.load("gpt2")
    peak = find_peaks(trace)[0].lines["allocated"]
    assert peak.size_bytes == truth["peak"]["allocated_bytes.all.peak"]
    tile = gpt2.page.locator(".tile", has_text="Peak allocated")
    assert tile.locator(".figure").inner_text() == format_bytes(peak.size_bytes)
    assert f"{peak.phase}, step {peak.step}" in tile.inner_text()
    drawn = gpt2.ask("Math.max(...report.time.charts[0].uplot.data.at(-1).filter(Boolean))")
    assert drawn == peak.size_bytes
    peaks = gpt2.ask("report.sections.find((s) => s.name === 'timeline').data.devices[0].peak")
    assert (peaks["bytes"], peaks["event"]) == (peak.size_bytes, peak.event)


def test_zooming_refines_and_loses_no_peak(gpt2):
    """In any view the highest and the lowest value drawn are the true ones of that stretch."""
    trace, _ = recorded.load("gpt2")
    columns = gpt2.ask("report.sections.find((s) => s.name === 'timeline').data.devices[0].places")
    line = build_timeline(trace, columns=columns // 4).devices[0].lines["allocated"]
    start, end = (time / 1e9 for time in trace.time_span_ns)
    random = np.random.default_rng(0)
    rows_before = None
    for size in (columns // 8, 20_000, 3000, 500, 60):
        first = int(random.integers(0, columns // 4 - size))
        view = [start + (end - start) * (c + 0.02) / (columns // 4) for c in (first, first + size)]
        drawn = gpt2.ask(
            f"(report.time.view.set({view[0]}, {view[1]}), report.time.charts[0].uplot.data)"
        )
        values = [value for value in drawn[-1] if value is not None]
        assert max(values) == line[first : first + size, 2].max()
        assert min(values) == line[first : first + size, 1].min()
        shown = gpt2.ask("[report.time.charts[0].uplot.scales.x.min, report.time.view.start]")
        assert shown == pytest.approx([view[0]] * 2)
        rows = len(drawn[0])
        assert rows_before is None or rows <= max(rows_before, 4100)
        rows_before = rows


def test_the_mouse_zooms_and_a_double_click_shows_the_whole_run(gpt2):
    page = gpt2.page
    page.get_by_role("button", name="Show the whole run").click()
    whole = gpt2.ask("[report.time.view.start, report.time.view.end]")
    labels = page.locator(".toolbar .shown").inner_text()
    plot = page.locator("#timeline .u-over").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 60, steps=4)
    page.mouse.up()
    zoomed = gpt2.ask("[report.time.view.start, report.time.view.end]")
    span = whole[1] - whole[0]
    assert zoomed[0] == pytest.approx(whole[0] + 0.8 * span, abs=0.01 * span)
    assert zoomed[1] == pytest.approx(whole[0] + 0.9 * span, abs=0.01 * span)
    assert page.locator(".toolbar .shown").inner_text() != labels
    plot.dblclick()
    assert gpt2.ask("[report.time.view.start, report.time.view.end]") == whole


def test_the_keyboard_alone_is_enough(gpt2):
    page = gpt2.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#timeline .chart')"):
            break
    else:
        raise AssertionError("the chart is not in the order of the Tab key")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    page.keyboard.press("0")
    span = gpt2.ask("report.time.view.span")
    page.keyboard.press("+")
    assert gpt2.ask("report.time.view.span") == pytest.approx(span / 2)
    begin = gpt2.ask("report.time.view.start")
    page.keyboard.press("Shift+ArrowLeft")
    assert gpt2.ask("report.time.view.start") < begin
    page.keyboard.press("p")
    peak = find_peaks(recorded.load("gpt2")[0])[0].lines["allocated"]
    told = page.locator("#timeline .device [role=status]").first.inner_text()
    assert f"step {peak.step}" in told and peak.phase in told
    page.keyboard.press("ArrowRight")
    assert page.locator("#timeline .device [role=status]").first.inner_text() != told


def test_tab_goes_through_the_page_and_out_again(gpt2):
    """Each stop is in view, not under the bar at the top, and has an outline."""
    look = """(() => {
      const element = document.activeElement;
      if (element === document.body) return null;
      const {left, top, width} = element.getBoundingClientRect();
      const hit = document.elementFromPoint(Math.max(left + 3, 0), Math.max(top + 3, 0));
      return {
        name: element.outerHTML.slice(0, 80),
        seen: width > 0 && hit !== null && (element.contains(hit) || hit.contains(element)),
        outline: getComputedStyle(element).outlineStyle,
        section: element.closest("main > section")?.id,
      };
    })()"""
    stops = []
    for _ in range(400):
        gpt2.page.keyboard.press("Tab")
        stop = gpt2.page.evaluate(look)
        if stop is None:
            break
        stops.append(stop)
    else:
        raise AssertionError("Tab does not leave the page")
    assert [stop for stop in stops if not stop["seen"] or stop["outline"] == "none"] == []
    assert {"timeline", "peak", "gaps", "run"} <= {stop["section"] for stop in stops}


def test_tables_are_sorted_and_filtered(gpt2):
    table = gpt2.page.locator("#phases .table").first
    head = table.get_by_role("columnheader", name="Peak allocated")
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    order = table.locator("tbody th").all_inner_texts()
    assert order[0] == "backward" and order[-1] == "init"
    head.get_by_role("button").press("Enter")
    assert table.locator("tbody th").all_inner_texts() == order[::-1]
    run = gpt2.page.locator("#run .table")
    run.get_by_role("searchbox").fill("format")
    assert run.locator("tbody tr").count() == 1


def test_the_categories_reach_up_to_the_peak(gpt2):
    _, truth = recorded.load("gpt2")
    peak = truth["peak"]["allocated_bytes.all.peak"]
    (device,) = gpt2.ask("report.sections.find((s) => s.name === 'categories').data.devices")
    totals = np.sum([layer["bytes"] for layer in device["layers"]], axis=0)
    assert totals.max() == peak
    assert {"parameter", "activation", "optimizer_state"} <= {x["name"] for x in device["layers"]}


def test_the_categories_may_begin_long_after_the_trace(chromium, tmp_path):
    builder = TraceBuilder().phase("init").alloc(512, 50 * MIB, after_ns=10**9)
    for _ in range(3000):  # more than there are pixels
        builder.alloc(1 << 30, MIB, after_ns=10**6).free(1 << 30, after_ns=10**6)
    with opened(chromium, write_page(builder.trace(), tmp_path)) as found:
        filled = found.ask(
            """[0.02, 0.5].map((part) => {
                const over = document.querySelector("#categories .u-over");
                const canvas = document.querySelector("#categories canvas");
                const scale = canvas.width / canvas.offsetWidth;
                const x = scale * (over.offsetLeft + over.offsetWidth * 0.52); // no grid line
                const y = scale * (over.offsetTop + over.offsetHeight * part);
                const { data } = canvas.getContext("2d").getImageData(x, y, 40, 1);
                return data.filter((value, i) => i % 4 === 3 && value === 255).length;
            })"""
        )
    assert filled == [0, 40]  # room above the highest, none below it


def test_the_blocks_of_the_peak_add_up_and_are_filtered(gpt2):
    _, truth = recorded.load("gpt2")
    peak = truth["peak"]["allocated_bytes.all.peak"]
    data = "report.sections.find((s) => s.name === 'peak').data.devices[0]"
    rows = gpt2.ask(f"[Array.from({data}.rows.size_bytes), Array.from({data}.rows.count)]")
    assert np.dot(*rows) == peak
    section = gpt2.page.locator("#peak")
    section.get_by_label("phase of birth").check()
    assert "optimizer" in section.locator("tbody").first.inner_text()
    blocks = section.locator(".table").last
    blocks.get_by_role("searchbox").fill("parameter")
    kinds = set(blocks.locator("tbody th").all_inner_texts())
    assert kinds == {"parameter"}
    assert "with “parameter”" in blocks.get_by_role("status").inner_text()


def test_growth_is_told_in_words(chromium, tmp_path):
    builder = TraceBuilder()
    for step in range(60):
        builder.phase("forward").alloc((step + 1) << 21, MIB).step(step + 1)
    with opened(chromium, write_page(builder.trace(), tmp_path)) as found:
        told = found.page.locator(".verdicts .bad").inner_text()
        assert "Growing: 1.00 MiB per step" in told
        assert found.page.locator("#growth .verdict").inner_text().startswith("Growing: 1.00 MiB")


def test_a_line_can_be_hidden(gpt2):
    button = gpt2.page.locator("#timeline .legend button", has_text="reserved")
    button.press("Space")
    assert button.get_attribute("aria-pressed") == "false"
    shown = gpt2.ask("report.time.charts[0].uplot.series.filter((s) => s.show).map((s) => s.label)")
    assert "reserved" not in shown and "allocated" in shown


def test_what_the_device_uses_is_hidden_where_it_dwarfs_the_rest(chromium, tmp_path):
    builder = TraceBuilder().alloc(512, 10 * MIB).stats(*[10 * MIB] * 3, 20 * MIB)
    builder.add(Kind.DEVICE_USED, size_bytes=550 * MIB, stream=1 << 34)
    with opened(chromium, write_page(builder.trace(), tmp_path)) as found:
        button = found.page.locator("#timeline .legend button", has_text="device used")
        assert button.get_attribute("aria-pressed") == "false"
        top = "report.time.charts[0].uplot.scales.y.max"
        assert found.ask(top) < 30 * MIB
        button.click()
        assert found.ask(top) > 550 * MIB


def test_light_dark_and_back(gpt2):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = gpt2.page.evaluate(ground)
    gpt2.page.get_by_role("button", name="Dark colours").click()
    dark = gpt2.page.evaluate(ground)
    assert dark != light
    gpt2.page.get_by_role("button", name="Light colours").click()
    assert gpt2.page.evaluate(ground) == light


@pytest.mark.parametrize("name", ["died", "two_devices", "hostile", "lost_events"])
def test_a_phone_needs_no_sideways_scrolling(chromium, tmp_path, name):
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with opened(chromium, write_page(PAGES[name](), tmp_path), **phone) as found:
        assert found.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert found.complaints == []


def test_text_stands_out_from_its_ground(chromium, gpt2_page):
    """WCAG AA: 4.5:1 for every text on the page, in both themes."""
    measure = """() => {
      const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
      const ground = (element) => {
        for (let e = element; e; e = e.parentElement) {
          const [r, g, b, a = 1] = rgb(getComputedStyle(e).backgroundColor);
          if (a === 1) return [r, g, b];
        }
        return [255, 255, 255];
      };
      const light = (color) => {
        const [r, g, b] = color.slice(0, 3).map((v) => v / 255)
          .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const found = [];
      for (const element of document.querySelectorAll("body *")) {
        const text = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
        if (!text || !element.getClientRects().length) continue;
        if (element.closest("script, style, noscript, canvas")) continue;
        const [a, b] = [rgb(getComputedStyle(element).color), ground(element)].map(light);
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) found.push([element.outerHTML.slice(0, 80), contrast]);
      }
      return found;
    }"""
    for scheme in ("light", "dark"):
        with opened(chromium, gpt2_page, color_scheme=scheme) as found:
            assert found.page.evaluate(measure) == []


def test_headings_labels_and_landmarks(gpt2):
    page = gpt2.page
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((h) => +h.tagName[1])")
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, [role=group], [role=region]')].filter((e) =>"
        " !e.hidden && !(e.textContent.trim() || e.ariaLabel || e.labels?.length))"
        ".map((e) => e.outerHTML)"
    )
    assert unnamed == []
    assert page.locator("table caption").count() == page.locator("table").count()
    assert page.evaluate("document.documentElement.lang") == "en"


@pytest.mark.parametrize("size", [0, 512, 1023, 1024, 1293401600, 2**40 + 5, 85027979264])
def test_bytes_read_as_they_do_on_the_terminal(chromium, tmp_path, size):
    builder = TraceBuilder().alloc(512, size).stats(size, size, size, size)
    with opened(chromium, write_page(builder.trace(), tmp_path)) as found:
        shown = found.page.locator(".tile", has_text="Peak reserved").locator(".figure")
        assert shown.inner_text() == format_bytes(size)


@pytest.mark.parametrize("time_ns", [850, 29_412_345, 999_999, 3_661_631_000, 7_510_000_000_000])
def test_durations_read_as_they_do_on_the_terminal(chromium, tmp_path, time_ns):
    trace = TraceBuilder().alloc(512, 1, after_ns=0).step(1, after_ns=time_ns).trace()
    with opened(chromium, write_page(trace, tmp_path)) as found:
        shown = found.page.locator(".tile", has_text="Steps").locator(".note")
        assert shown.inner_text() == f"in {format_duration(time_ns / 1e9)}"


def test_the_map_of_segments_is_drawn_and_read_out(chromium, tmp_path):
    trace = train_and_eval()[0].trace()
    with opened(chromium, write_page(trace, tmp_path)) as found:
        section = found.page.locator("#segments")
        assert "cached" in section.locator(".verdict").inner_text()
        section.locator(".chart").first.focus()
        found.page.keyboard.press("ArrowUp")
        told = section.locator(".readout").first.inner_text()
        assert "0x" in told and ("% in use" in told or "not reserved" in told)
        assert found.complaints == []
