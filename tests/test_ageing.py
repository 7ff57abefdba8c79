"""A trace within a limit of disk space: what is kept exactly, and that the limit holds."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from aged import MIB, PHASES, Run, write

import gpumemtrace
from gpumemtrace.analysis.aged import describe_ranges, find_aged
from gpumemtrace.analysis.check import check_trace
from gpumemtrace.analysis.growth import find_growth
from gpumemtrace.analysis.live import Follower
from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.analysis.phases import find_phases
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace

STEPS, PAIRS, LIMIT = 1300, 240, 5 * MIB
UNUSUAL = {"peak": 350, "oom": 330, "retry": 300, "gap": 250, "growth": 400}


class Pair:
    """The same run, whole and aged."""

    def __init__(self, folder: Path) -> None:
        self.whole_path, self.path = folder / "whole.gmt", folder / "long.gmt"
        run = Run(pairs=PAIRS, unusual=UNUSUAL)
        steps = list(run.steps(STEPS))
        write(self.whole_path, iter(steps), run.names())
        self.looks: list[tuple[int, int]] = []
        self.rounds = write(
            self.path, iter(steps), run.names(), max_disk_bytes=LIMIT, after_step=self._look
        )
        self.whole, self.aged = gpumemtrace.open(self.whole_path), gpumemtrace.open(self.path)

    def _look(self, step: int) -> None:
        """Somebody reads while it is written: at any instant it is whole."""
        if step % 25 != 24:
            return
        trace = gpumemtrace.open(self.path)
        assert {problem.kind for problem in trace.problems} <= {"not_closed"}
        first, last = int(trace.steps.number[0]), int(trace.steps.number[-1])
        assert first == 0
        self.looks.append((step, last))
        del trace
        gc.collect()  # a file that is open keeps its room, replaced or not


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("aged"))


def test_the_limit_makes_the_file_small_and_the_newest_is_always_there(pair: Pair) -> None:
    assert pair.rounds >= 1
    assert pair.path.stat().st_size < LIMIT
    # What was appended and not flushed yet is a chunk: 1280 events with this limit, some 2 steps.
    assert all(step - last <= 4 for step, last in pair.looks)
    assert [path.name for path in pair.path.parent.iterdir() if path.name.startswith(".")] == []


def test_check_calls_it_good_and_says_what_was_left_out(pair: Pair) -> None:
    result = check_trace(pair.aged)
    assert (result.verdict, result.exit_status, result.diagnostics) == ("good", 0, ())
    assert result.dropped_events == 7  # those of the gap, no more
    assert result.live_blocks == check_trace(pair.whole).live_blocks
    assert result.aged.left_out_events == len(pair.whole) - len(pair.aged)
    left_out = pair.whole.size_bytes.sum() - pair.aged.size_bytes.sum()
    assert result.aged.left_out_bytes == left_out


def test_lines_are_exact_in_every_step(pair: Pair) -> None:
    for aged, whole in zip(find_peaks(pair.aged), find_peaks(pair.whole), strict=True):
        assert aged.steps.number.tolist() == whole.steps.number.tolist()
        for line, peak in whole.steps.peak.items():
            assert aged.steps.peak[line].tolist() == peak.tolist(), line
            assert aged.steps.end[line].tolist() == whole.steps.end[line].tolist(), line
            one, other = aged.lines[line], whole.lines[line]
            assert one is not None
            assert other is not None
            assert (one.size_bytes, one.step) == (other.size_bytes, other.step)
            assert (one.time_ns, one.phase) == (other.time_ns, other.phase)


def test_phases_are_exact(pair: Pair) -> None:
    for aged, whole in zip(find_phases(pair.aged), find_phases(pair.whole), strict=True):
        assert [use.name for use in aged.phases] == list(PHASES)
        for one, other in zip(aged.phases, whole.phases, strict=True):
            assert (one.count, one.time_s) == (other.count, other.time_s)
            assert one.net_allocated_bytes == other.net_allocated_bytes
            assert one.peak == other.peak


def rows_of(trace: Trace) -> set[tuple[int, ...]]:
    """Blocks that outlived the step in which they were born."""
    lived = trace.lifetimes()
    names = ("address", "size_bytes", "birth_step", "death_step", "birth_phase", "death_phase")
    names += ("birth_thread", "device", "category_id")
    outlived = lived.birth_step != lived.death_step
    return set(zip(*(lived[name][outlived].tolist() for name in names), strict=True))


def test_blocks_that_outlive_their_step_keep_their_identity(pair: Pair) -> None:
    mine, whole = rows_of(pair.aged), rows_of(pair.whole)
    assert len(whole) > 2 * STEPS
    assert {row[:-1] for row in mine} == {row[:-1] for row in whole}
    lived = pair.aged.lifetimes()
    aged = find_aged(pair.aged)
    assert lived.is_from_aged.tolist() == aged.covers(lived.birth_step).tolist()
    inside = lived.is_from_aged & (lived.birth_step == lived.death_step)
    assert not inside.any()


def test_first_last_and_unusual_steps_are_in_full_detail(pair: Pair) -> None:
    aged = find_aged(pair.aged)
    detailed = {step for a, b in aged.detailed for step in range(a, b + 1)}
    assert {0, 1, STEPS - 1, STEPS - 20, *UNUSUAL.values()} <= detailed
    assert len(aged.step) > STEPS // 5
    assert len(aged.step) + len(detailed - {STEPS}) == STEPS
    assert aged.merged_steps == 0
    for step in (0, 1, *UNUSUAL.values(), STEPS - 1):
        mine = pair.aged.slice(steps=(step, step + 1)).columns()
        whole = pair.whole.slice(steps=(step, step + 1)).columns()
        for name, column in whole.items():
            assert mine[name].tolist() == column.tolist(), (step, name)
    spans = aged.span_ns
    assert (spans[1:, 0] >= spans[:-1, 1]).all()
    assert spans[0, 0] == pair.aged.steps.start_ns[aged.first]


def test_growth_says_the_same(pair: Pair) -> None:
    mine, whole = find_growth(pair.aged), find_growth(pair.whole)
    assert mine.verdict == whole.verdict
    for one, other in zip(mine.devices, whole.devices, strict=True):
        assert one.steps == other.steps
        assert (one.from_step, one.to_step) == (other.from_step, other.to_step)
        total = one.retained.size_bytes.sum(axis=1)
        assert total.tolist() == other.retained.size_bytes.sum(axis=1).tolist()


def test_the_peak_of_a_summarised_step_lists_what_outlived_it(pair: Pair) -> None:
    aged = find_aged(pair.aged)
    step = int(aged.step[5])
    mine, whole = pair.aged.peak(step), pair.whole.peak(step)
    assert mine.is_summarised
    assert not whole.is_summarised
    assert (mine.size_bytes, mine.time_ns) == (whole.size_bytes, whole.time_ns)
    assert sum(group.size_bytes for group in mine.group_by("phase")) == whole.size_bytes
    highest = pair.aged.peak()
    assert highest.step == UNUSUAL["peak"]
    assert not highest.is_summarised
    assert len(highest.blocks) == len(pair.whole.peak().blocks)


def test_rare_records_all_stay(pair: Pair) -> None:
    for kind in (Kind.STEP, Kind.PHASE, Kind.RETRY, Kind.ALLOC_FAILED, Kind.GAP):
        mine, whole = pair.aged.records(kind), pair.whole.records(kind)
        for name in ("time_ns", "size_bytes", "address", "thread", "step"):
            assert mine[name].tolist() == whole[name].tolist()


@pytest.mark.parametrize("seed", range(3))
def test_other_runs_and_limits(tmp_path: Path, seed: int) -> None:
    pairs, limit, steps = ((24, MIB, 3000), (400, MIB, 400), (120, 3 * MIB // 2, 1200))[seed]
    run = Run(seed, pairs=pairs)
    written = list(run.steps(steps))
    write(tmp_path / "whole.gmt", iter(written), run.names())
    path = tmp_path / "long.gmt"
    assert write(path, iter(written), run.names(), max_disk_bytes=limit) >= 1
    trace, whole = gpumemtrace.open(path), gpumemtrace.open(tmp_path / "whole.gmt")
    result = check_trace(trace)
    assert result.verdict == "good"
    assert result.aged.left_out_events == len(whole) - len(trace) > 0
    for aged, full in zip(find_peaks(trace), find_peaks(whole), strict=True):
        # Steps told as one have the number of the first, and the peak of them all.
        rows = np.searchsorted(full.steps.number, aged.steps.number)
        for line, peak in full.steps.peak.items():
            assert aged.steps.peak[line].tolist() == np.maximum.reduceat(peak, rows).tolist()


def test_very_many_steps_are_told_several_as_one(tmp_path: Path) -> None:
    run = Run(pairs=4)
    path = tmp_path / "long.gmt"
    steps = 12_000
    assert write(path, run.steps(steps), run.names(), max_disk_bytes=MIB) >= 3
    trace = gpumemtrace.open(path)
    assert check_trace(trace).verdict == "good"
    aged = find_aged(trace)
    assert aged.merged_steps > 1000
    detailed = {step for a, b in aged.detailed for step in range(a, b + 1)}
    single = set(aged.step.tolist()) | detailed
    assert 0 in detailed
    assert steps - 1 in detailed
    assert aged.merged_steps + len(single - {steps}) - _merged_rows(trace) == steps
    assert find_growth(trace).devices[0].from_step >= aged.first_single_step
    assert trace.steps.number[-1] == steps - 1
    # Phases are known of the steps that are told one by one.
    assert sum(use.count for use in find_phases(trace)[0].phases) == len(PHASES) * (
        len(trace.steps) - _merged_rows(trace)
    )


def _merged_rows(trace: Trace) -> int:
    records = trace.records(Kind.AGED)
    return len(np.unique(records["step"][records["flags"] > 1]))


def test_a_run_without_steps_ages_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "server.gmt"

    def without_steps() -> object:
        for columns in Run(pairs=400).steps(800):
            inner = np.isin(columns["kind"], [Kind.STEP, Kind.PHASE], invert=True)
            yield {name: column[inner] for name, column in columns.items()}

    assert write(path, without_steps(), Run().names(), max_disk_bytes=2 * MIB) >= 1
    trace = gpumemtrace.open(path)
    result = check_trace(trace)
    assert result.verdict == "good"
    assert result.aged.left_out_events > 100_000
    assert len(trace.steps) == 0
    assert find_aged(trace).span_ns.shape == (1, 2)


def test_top_goes_on_when_a_smaller_file_takes_the_place(tmp_path: Path) -> None:
    path = tmp_path / "long.gmt"
    run = Run()
    seen: list[tuple[int, int]] = []
    followers: list[Follower] = []
    written = [0]

    def look(step: int) -> None:
        if step % 100 == 99:
            followers[:] = followers or [Follower(path)]
            status = followers[0].look()
            seen.append((status.step, status.events))

    def counted() -> object:
        for columns in run.steps(1200):
            yield columns
            written[0] += int(np.isin(columns["kind"], [1, 2]).sum())

    assert write(path, counted(), run.names(), max_disk_bytes=MIB, after_step=look) >= 1
    assert [events for _, events in seen] == sorted(events for _, events in seen)
    assert seen[-1][0] >= 1195
    assert followers[0].look().events == written[0]


def test_ranges_in_words() -> None:
    assert describe_ranges([]) == "none"
    assert describe_ranges([(0, 11), (500, 500)]) == "0-11, 500"
    assert describe_ranges([(i, i) for i in range(0, 10, 2)], most=4) == "0, 2, 4, 6, 8"
    assert describe_ranges([(i, i) for i in range(0, 100, 2)], most=4) == (
        "0, 2, … 46 more …, 96, 98"
    )


def test_a_limit_that_is_too_small_is_refused(tmp_path: Path) -> None:
    run = Run()
    with pytest.raises(ValueError, match="1 MiB or more"):
        write(tmp_path / "long.gmt", run.steps(1), run.names(), max_disk_bytes=1000)
