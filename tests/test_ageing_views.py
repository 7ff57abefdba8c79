"""Views of a long run within a limit of disk space: they tell of its steps, and what has aged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from aged import MIB, Run, write
from matplotlib.figure import Figure

import gpumemtrace
from gpumemtrace.analysis.aged import find_aged
from gpumemtrace.analysis.answers import find_answers
from gpumemtrace.analysis.category_timeline import find_category_timeline
from gpumemtrace.analysis.compare import compare_traces
from gpumemtrace.analysis.growth import find_growth
from gpumemtrace.analysis.owner_tree import find_owner_trees
from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.analysis.phase_changes import find_phase_changes
from gpumemtrace.analysis.recorder_cost import CostFinder
from gpumemtrace.analysis.rest import NOT_SEEN, SUMMARISED, split_rest
from gpumemtrace.analysis.step_phases import find_step_phases
from gpumemtrace.analysis.step_times import find_step_times
from gpumemtrace.cli.main import main
from gpumemtrace.plot.kinds import load_kind
from gpumemtrace.plot.peak import plot_step_peaks
from gpumemtrace.plot.style import CATEGORY_COLORS, REST_COLORS
from gpumemtrace.report.results import collect
from gpumemtrace.report.sections import categories, sections_of
from gpumemtrace.schema import Kind
from gpumemtrace.trace_file import Names

STEPS, HIGH = 9000, 2500


class Pair:
    """A run of many steps, whole and so small that most of its steps share summaries."""

    def __init__(self, folder: Path) -> None:
        run = Run(pairs=16, unusual={"peak": HIGH})
        steps = list(run.steps(STEPS))
        self.whole_path, self.path = folder / "whole.gmt", folder / "aged.gmt"
        write(self.whole_path, iter(steps), run.names())
        write(self.path, iter(steps), run.names(), max_disk_bytes=MIB)
        self.whole, self.aged = gpumemtrace.open(self.whole_path), gpumemtrace.open(self.path)
        self.singles = self.aged.steps.singles.number
        self.merged = find_aged(self.aged).merged_steps


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    found = Pair(tmp_path_factory.mktemp("aged_views"))
    assert found.merged > STEPS // 2
    assert len(found.singles) > 100
    return found


def output_of(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_rows_stand_for_as_many_steps_as_they_do(pair: Pair) -> None:
    steps = pair.aged.steps
    assert len(steps) < STEPS == steps.total == pair.whole.steps.total == len(pair.whole.steps)
    assert (steps.number[:-1] + steps.count[:-1]).tolist() == steps.number[1:].tolist()
    aged = find_aged(pair.aged)
    detailed = {step for first, last in aged.detailed for step in range(first, last + 1)}
    assert aged.steps + len(detailed - {STEPS}) == STEPS
    assert aged.to_dict()["steps"] == aged.steps > aged.to_dict()["summaries"]


@pytest.mark.parametrize("command", ["info", "summary", "times", "compare"])
def test_commands_tell_the_steps_of_the_run(
    pair: Pair, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    more = [pair.path] if command == "compare" else []
    text = output_of(capsys, command, pair.path, *more)
    aged = find_aged(pair.aged)
    heading = f"{STEPS:,} steps ({aged.steps:,} in summary only)"
    told = {
        "info": [f" in {STEPS:,} steps and ", f"events of {aged.steps:,} steps from "],
        "summary": [heading, "(no phase, or not known)"],
        "times": [f"{len(pair.singles):,} steps, median", f"{pair.merged:,} more steps had to"],
        "compare": [heading],
    }
    for part in told[command]:
        assert part in text
    if command != "compare":
        found = json.loads(output_of(capsys, command, pair.path, "--json"))
        steps = found["trace"]["steps"] if command == "summary" else found["steps"]
        assert steps == (len(pair.singles) if command == "times" else STEPS)


def test_figures_and_the_report_tell_the_steps_of_the_run(pair: Pair) -> None:
    heading = f"{STEPS:,} steps ({find_aged(pair.aged).steps:,} in summary only)"
    for name in ("timeline", "categories", "peak", "growth", "phases", "sizes"):
        kind = load_kind(name)
        figure = kind.draw(kind.build(pair.aged))
        assert any(heading in text.get_text() for text in figure.texts), name
    results = collect(pair.aged)
    sections = {section.NAME: section.gather(results) for section in sections_of(results)}
    assert sections["overview"]["steps"] == STEPS
    assert sections["overview"]["recorded_events"] == len(pair.whole)
    assert sections["phases"]["merged_steps"] == sections["times"]["merged_steps"] == pair.merged


def test_the_median_peak_is_of_steps_told_one_by_one(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps told as one have the peak of the highest of them."""
    for mine, whole in zip(find_peaks(pair.aged), find_peaks(pair.whole), strict=True):
        peaks = whole.steps.peak["allocated"][pair.singles]
        assert mine.steps.median_peak_bytes == np.median(peaks)
        assert mine.steps.median_peak_bytes == pytest.approx(
            whole.steps.median_peak_bytes, rel=0.05
        )
    told = output_of(capsys, "summary", pair.path)
    assert f" of the {len(pair.singles):,} told one by one, highest " in told


def test_what_has_aged_is_not_called_unseen(pair: Pair) -> None:
    for mine, whole in zip(
        find_category_timeline(pair.aged), find_category_timeline(pair.whole), strict=True
    ):
        assert not mine.rest_bytes.any()
        assert not whole.summarised_bytes.any()
        assert not whole.rest_bytes.any()
        assert mine.summarised_bytes.any()
        told = mine.category_bytes.sum(axis=1) + mine.summarised_bytes
        assert told.tolist() == mine.allocated_bytes.tolist()
    for device in find_answers(pair.aged).devices:
        assert device.not_seen_bytes == 0
    step = int(find_aged(pair.aged).step[5])
    names = {group.name for group in pair.aged.peak(step).group_by("category")}
    assert SUMMARISED in names
    assert NOT_SEEN not in names
    peak = pair.aged.peak()
    assert peak.step == HIGH
    assert not peak.steps.rest_bytes["not_seen"].any()
    is_aged = find_aged(pair.aged).covers(peak.steps.number)
    assert not peak.steps.rest_bytes["summarised"][~is_aged].any()
    assert REST_COLORS[SUMMARISED] not in {REST_COLORS[NOT_SEEN], *CATEGORY_COLORS.values()}


def test_the_chart_of_categories_names_it(pair: Pair) -> None:
    kind = load_kind("categories")
    figure = kind.draw(kind.build(pair.aged))
    keys = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert SUMMARISED in keys
    assert NOT_SEEN not in keys
    devices = categories.gather(collect(pair.aged))["devices"]
    layers = {layer["name"] for device in devices for layer in device["layers"]}
    assert SUMMARISED in layers
    assert NOT_SEEN not in layers


def test_a_rest_is_split_by_what_was_so_before() -> None:
    rest = np.array([5, 5, 9, 4, -2, 6, 7])
    is_aged = np.array([0, 1, 1, 1, 0, 1, 0], np.bool_)
    summarised, not_seen = split_rest(rest, is_aged)
    assert summarised.tolist() == [0, 0, 4, 0, 0, 6, 0]
    assert split_rest(np.array([3, -4]), np.array([False, True]))[0].tolist() == [0, -4]
    assert not_seen.tolist() == [5, 5, 5, 4, -2, 0, 7]
    assert split_rest(np.array([3]), np.array([True]))[0].tolist() == [3]


def test_what_is_told_per_step_is_that_of_steps_told_one_by_one(pair: Pair) -> None:
    mine, whole = find_step_times(pair.aged), find_step_times(pair.whole)
    assert mine.number.tolist() == pair.singles.tolist()
    assert mine.merged_steps == pair.merged == STEPS - len(pair.singles)
    assert mine.duration_ns.tolist() == whole.duration_ns[pair.singles].tolist()
    assert mine.phase_ns.tolist() == whole.phase_ns[pair.singles].tolist()
    changes = find_phase_changes(pair.aged).complete
    of_whole = find_phase_changes(pair.whole).complete
    assert changes.number.tolist() == pair.singles.tolist()
    assert changes.merged_steps == pair.merged
    for one, other in zip(changes.devices, of_whole.devices, strict=True):
        expected = other.allocated_bytes[pair.singles]
        assert one.allocated_bytes.sum(axis=1).tolist() == expected.sum(axis=1).tolist()
    for one in find_step_phases(pair.aged):
        assert set(one.number.tolist()) <= {*pair.singles.tolist(), STEPS}


def test_ages_of_survivors_count_every_step(pair: Pair) -> None:
    for mine, whole in zip(
        find_growth(pair.aged).devices, find_growth(pair.whole).devices, strict=True
    ):
        assert mine.steps == whole.steps == STEPS
        assert mine.survivors[-1].oldest == whole.survivors[-1].oldest == STEPS - 1
        # What is in use at the end of steps told as one is so at the end of the last.
        place = np.searchsorted(whole.retained.number, mine.retained.number)
        expected = whole.retained.size_bytes.sum(axis=1)[place]
        assert mine.retained.size_bytes.sum(axis=1).tolist() == expected.tolist()


def test_comparing_counts_allocations_of_steps_in_full_detail(pair: Pair) -> None:
    found = compare_traces(pair.aged, pair.whole)
    assert (found.steps.a, found.steps.b) == (STEPS, STEPS)
    for device in found.devices:
        # The steps are made alike, at random: those in detail allocate as much as all do.
        of_steps = sum(abs(group.change_bytes) for group in device.groups)
        a_step = pair.whole.size_bytes[pair.whole.device == device.device].sum() / STEPS
        assert of_steps < 0.5 * a_step


def test_a_high_step_is_as_wide_as_a_step(pair: Pair) -> None:
    """WHERE the row after it stands for many steps."""
    ax = plot_step_peaks(pair.aged.peak(device=0), Figure().subplots())
    points = np.concatenate([p.vertices for area in ax.collections for p in area.get_paths()])
    at_top = points[points[:, 1] > 0.99 * points[:, 1].max(), 0]
    assert HIGH - STEPS / 200 <= at_top.min() <= at_top.max() <= HIGH + STEPS / 200


def test_the_recording_counts_what_was_left_out(pair: Pair) -> None:
    cost = CostFinder(pair.aged).finish()
    assert cost.events == len(pair.whole)
    assert cost.bytes_per_event == pair.aged.file_bytes / len(pair.whole)


def test_exports_name_steps_that_are_told_as_one(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, count = next(iter(pair.aged.marks.together.items()))
    name = f"{first}-{first + count - 1}".encode()
    for target, label in (("perfetto", b"step " + name), ("memory_viz", b"ProfilerStep#" + name)):
        output_of(capsys, "export", pair.path, "--to", target, "-o", tmp_path / target)
        assert label in (tmp_path / target).read_bytes()


def test_trees_of_what_was_allocated_hold_what_was_left_out(tmp_path: Path) -> None:
    run = Run(pairs=16)
    steps = list(run.steps(4000))
    for columns in steps:
        columns["site"] = (columns["kind"] == Kind.ALLOC).astype(np.uint32)
    phases = run.names().phases
    names = Names(phases=phases, modules={1: (0, "Net")}, sites={1: (1, 0, 0)})
    write(tmp_path / "aged.gmt", iter(steps), names, max_disk_bytes=MIB)
    for device in find_owner_trees(gpumemtrace.open(tmp_path / "aged.gmt")):
        roots = {(tree.by, tree.of): tree.root for tree in device.trees}
        root = roots["module", "allocated"]
        asked = sum(
            int(columns["size_bytes"][mine].sum())
            for columns in steps
            for mine in [(columns["kind"] == Kind.ALLOC) & (columns["device"] == device.device)]
        )
        assert root.size_bytes == asked
        assert {child.name for child in root.children} == {"Net", SUMMARISED}
