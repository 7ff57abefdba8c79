"""GIVEN steps and calls of the driver, WHEN they are timed, THEN sums and causes are right."""

from __future__ import annotations

import json

import numpy as np
import pytest
import recorded
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.lines import feed_lines
from gpumemtrace.analysis.recorder_cost import HOOK_NS_PER_EVENT, READ_NS, CostFinder
from gpumemtrace.analysis.step_times import StepTimes, find_step_times
from gpumemtrace.analysis.timeline import build_timeline
from gpumemtrace.cli.main import main
from gpumemtrace.plot.timeline import draw_timeline
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace

MS = 1_000_000


def run(steps: int = 40, *, retries: dict[int, int], empties: dict[int, int] | None = None):
    """Steps of 30 ms; in some a retry or an emptied cache takes so many ms more, in forward."""
    builder = TraceBuilder()
    for step in range(steps):
        builder.phase("forward", after_ns=10 * MS).alloc(512 * (step + 1), 100)
        if step in retries:
            took = retries[step] * MS
            at = {"after_ns": took}
            builder.add(Kind.SEGMENT_ALLOC, address=1 << 30, size_bytes=MIB, extra=took, **at)
            builder.add(Kind.RETRY, size_bytes=5 * MIB, stream=1, extra=took)
        if empties and step in empties:
            took = empties[step] * MS
            builder.add(Kind.EMPTY_CACHE, device=-1, extra=took, after_ns=took)
        builder.phase("backward", after_ns=10 * MS)
        builder.step(step + 1, after_ns=10 * MS)
    return builder


def test_slow_steps_are_matched_to_their_retries():
    times = find_step_times(run(retries={7: 20, 30: 50}, empties={12: 15}).trace())
    assert [(s.step, s.cause, s.phase) for s in times.slow] == [
        (7, "retry", "forward"),
        (12, "empty_cache", "forward"),
        (30, "retry", "forward"),
    ]
    assert times.median_ns == pytest.approx(30 * MS, rel=0.01)
    assert times.slow[2].driver.retry_ns == 50 * MS
    assert [(f.kind, f.step, f.phase, f.duration_ns) for f in times.driver.flushes] == [
        ("retry", 7, "forward", 20 * MS),
        ("empty_cache", 12, "forward", 15 * MS),
        ("retry", 30, "forward", 50 * MS),
    ]
    assert times.driver.flushes[0].size_bytes == 5 * MIB
    json.dumps(times.to_dict())


def test_the_segment_that_a_retry_got_is_not_counted_twice():
    times = find_step_times(run(retries={7: 20}).trace())
    use = times.driver.by_phase["forward"]
    assert (use.segments, use.segment_ns, use.retries, use.retry_ns) == (1, 0, 1, 20 * MS)
    assert times.driver.duration_ns == 20 * MS


def test_a_slow_step_without_the_driver_has_no_cause():
    builder = run(20, retries={})
    builder.phase("data", after_ns=90 * MS).step(21, after_ns=MS)
    (slow,) = find_step_times(builder.trace()).slow
    assert (slow.step, slow.cause) == (20, None)


def test_segments_known_at_the_beginning_took_no_time():
    builder = TraceBuilder().add(Kind.SEGMENT_ALLOC, address=512, size_bytes=MIB)
    assert find_step_times(builder.trace()).driver.by_phase == {}


def test_without_steps_there_is_nothing():
    times = find_step_times(TraceBuilder().alloc(512, 1).trace())
    assert (len(times.number), times.median_ns, times.p95_ns, times.slow) == (0, 0, 0, ())


def test_real_steps_are_as_long_as_their_phases():
    trace, _ = recorded.load("gpt2")
    times: StepTimes = trace.step_times()
    np.testing.assert_array_equal(times.phase_ns.sum(axis=1), times.duration_ns)
    np.testing.assert_array_equal(
        times.duration_ns, [step.end_ns - step.start_ns for step in trace.steps]
    )
    assert times.phases[int(np.argmax(np.median(times.phase_ns, axis=0)))] == "forward"


def slow_phase_times(trace: Trace) -> list[list[int]]:
    """Every nanosecond by itself."""
    rows = []
    spans = [span for span in trace.phases if span.thread == trace.driving_thread]
    for step in trace.steps:
        row = [0] * (len(trace.phase_names) + 1)
        for at in range(step.start_ns, step.end_ns):
            inside = [span for span in spans if span.start_ns <= at < span.end_ns]
            row[trace.phase_names.index(inside[0].name) if inside else -1] += 1
        rows.append(row)
    return rows


@given(
    st.lists(
        st.tuples(st.sampled_from(["step", "a", "b", "a/b", "", "other"]), st.integers(0, 12)),
        max_size=25,
    )
)
@settings(max_examples=80)
def test_phase_times_equal_a_slow_reference(marks):
    builder = TraceBuilder().step(1)
    number = 1
    for name, after in marks:
        if name == "step":
            number += 1
            builder.step(number, after_ns=after)
        elif name == "other":
            builder.phase("a", thread=2, after_ns=after)
        else:
            builder.phase(name, after_ns=after)
    trace = builder.trace()
    times = find_step_times(trace)
    # Step 0 begins with the first record, which ends it.
    assert times.phase_ns.tolist() == slow_phase_times(trace)


def test_the_cost_of_the_recording():
    builder = TraceBuilder().alloc(512, 100).alloc(4096, 4 * MIB, extra=5 * MIB)
    builder.free(512, after_ns=1_000_000_000 - 1000)
    builder.add(Kind.SEGMENT_ALLOC, address=512, size_bytes=MIB, extra=1)
    trace = builder.trace()
    object.__setattr__(
        trace._source,
        "footer",
        {"totals": {"drain_cpu_ns": 10**7, "ring_high_water": 5, "ring_capacity": 64}},
    )
    finder = CostFinder(trace)
    feed_lines(trace, finder)
    cost = finder.finish()
    assert (cost.events, cost.readings) == (3, 1)
    assert cost.hook_s == pytest.approx((3 * HOOK_NS_PER_EVENT + READ_NS) / 1e9)
    assert cost.events_per_s == pytest.approx(3, rel=1e-3)
    assert cost.drain_share == pytest.approx(0.01, rel=1e-3)
    assert (cost.ring_high_water, cost.ring_capacity) == (5, 64)


def texts(trace: Trace) -> str:
    figure = draw_timeline(build_timeline(trace))
    FigureCanvasAgg(figure).draw()
    (legend, *_) = figure.legends
    return "\n".join(text.get_text() for text in legend.get_texts())


def test_the_timeline_marks_every_flush_with_its_duration_and_phase():
    trace = run(retries={7: 20, 30: 50}, empties={12: 15}).trace()
    assert "retry 2 x, cache emptied 1 x: 85 ms, mostly in forward" in texts(trace)
    assert "retry: 20 ms in forward, step 7" in texts(run(retries={7: 20}).trace())
    figure = draw_timeline(build_timeline(trace))
    spans = [patch for patch in figure.axes[0].patches if patch.get_alpha() == 0.7]
    widths = sorted(round(patch.get_width() * 1000) for patch in spans)
    assert widths == [15, 20, 50]


def test_a_cache_emptied_in_each_step_leaves_the_lines_to_be_seen():
    trace = run(retries={}, empties=dict.fromkeys(range(40), 1)).trace()
    figure = draw_timeline(build_timeline(trace))
    spans = [patch for patch in figure.axes[0].patches if patch.get_alpha() == 0.7]
    assert len(spans) == 40
    assert all(patch.get_height() < 0.05 for patch in spans)


def test_the_command(tmp_path, capsys):
    run(retries={7: 20}).trace().save(tmp_path / "a.gmt")
    assert main(["times", str(tmp_path / "a.gmt")]) == 0
    out = capsys.readouterr().out
    assert "40 steps, median 30 ms, 95 % below 30 ms, 1 slow" in out
    assert "retries: the cache was flushed for a request that found no room" in out
    assert main(["times", "--json", str(tmp_path / "a.gmt")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [(s["step"], s["cause"]) for s in result["slow"]] == [(7, "retry")]
    assert result["recorder"]["events"] == 40


def test_times_of_a_simulated_run_are_said_to_be_a_cpus(tmp_path, capsys):
    builder = run(retries={})
    builder.run_record = {"simulated": {"gpu": "H100"}}
    builder.trace().save(tmp_path / "a.gmt")
    assert main(["times", str(tmp_path / "a.gmt")]) == 0
    assert "simulated: these are times of a CPU, not of a GPU" in capsys.readouterr().out
    assert main(["times", "--json", str(tmp_path / "a.gmt")]) == 0
    assert json.loads(capsys.readouterr().out)["simulated"] is True
