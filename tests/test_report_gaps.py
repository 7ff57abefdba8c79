"""GIVEN a report, WHEN opened, THEN it names what lies between the lines, and what was lost."""

from __future__ import annotations

import numpy as np
import scenarios
from browser import opened, write_page
from fragmented import train_and_eval
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.cached_series import find_cached
from gpumemtrace.analysis.gap_results import GAPS
from gpumemtrace.analysis.gap_wording import GAP_LABELS
from gpumemtrace.analysis.gaps import find_gaps
from gpumemtrace.schema import Kind
from gpumemtrace.units import format_bytes


def column_of(table, title: str) -> dict[str, str]:
    """First cell of each row -> the cell below ``title``."""
    heads = table.locator("thead th").all_inner_texts()
    place = next(i for i, head in enumerate(heads) if head.startswith(title))
    rows = table.locator("tbody tr").evaluate_all(
        "(all) => all.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return {row[0]: row[place] for row in rows}


def traced_with_samples() -> TraceBuilder:
    builder = TraceBuilder().phase("forward")
    builder.alloc(512, 20 * MIB - 5).stats(20 * MIB - 5, 20 * MIB, 20 * MIB, 20 * MIB)
    used = {"size_bytes": 100 * MIB, "address": 60 * MIB, "stream": 1000 * MIB, "extra": 30 * MIB}
    builder.add(Kind.DEVICE_USED, after_ns=50_000_000, **used)
    builder.phase("backward").alloc(40 * MIB, 10 * MIB, after_ns=50_000_000)
    return builder.stats(30 * MIB - 5, 30 * MIB, 34 * MIB, 40 * MIB)


def test_the_parts_at_the_peak_are_the_trace_s(chromium, tmp_path):
    trace = traced_with_samples().trace()
    peak = find_gaps(trace)[0].highest["allocated"].gaps
    assert peak.pending == 4 * MIB and peak.outside is not None
    with opened(chromium, write_page(trace, tmp_path)) as found:
        table = found.page.locator("#gaps table").first
        told = column_of(table, "Most allocated")
        for name in GAPS:
            size = getattr(peak, name)
            assert told[GAP_LABELS[name]] == ("not known" if size is None else format_bytes(size))
        assert told["= active"] == format_bytes(34 * MIB)
        assert told["= reserved"] == format_bytes(40 * MIB)
        assert found.page.locator("#gaps .gap-bar .pending").count() >= 1


def test_the_cache_at_its_largest_by_cause_adds_up(chromium, tmp_path):
    trace = train_and_eval()[0].trace()
    series = find_cached(trace, device=0)
    row = int(np.argmax(series.cached))
    with opened(chromium, write_page(trace, tmp_path)) as found:
        cached = found.ask("report.sections.find((s) => s.name === 'gaps').data.devices[0].cached")
        assert cached["bytes"] == series.cached[row] > 0
        assert sum(cause["bytes"] for cause in cached["causes"]) == cached["bytes"]
        assert {cause["name"]: cause["bytes"] for cause in cached["causes"]} == {
            name: int(line[row]) for name, line in series.free.items() if line[row]
        }


def test_without_counters_the_parts_are_not_known(chromium, tmp_path):
    trace = TraceBuilder().alloc(512, 3 * MIB).trace()
    with opened(chromium, write_page(trace, tmp_path)) as found:
        told = column_of(found.page.locator("#gaps table").first, "Most allocated")
        assert told["requested"] == "3.0 MiB"
        assert {told[GAP_LABELS[name]] for name in ("cached", "outside")} == {"not known"}


def test_losses_are_told_with_their_extent(chromium, tmp_path):
    trace = scenarios.lost_events().trace()
    with opened(chromium, write_page(trace, tmp_path)) as found:
        losses = found.page.locator("#losses")
        assert "10,000 of " in losses.locator(".notice").inner_text()
        table = losses.locator("table").first
        assert list(column_of(table, "Lasted").values()) == ["9 ms"]
        assert list(column_of(table, "Asked for").values()) == ["5.000 GiB"]
        assert found.page.locator(".tile.warning").inner_text().startswith("Events lost")
