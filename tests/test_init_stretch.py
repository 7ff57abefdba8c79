"""GIVEN a run that begins with a long init, THEN a picture leaves it out unless a peak is in it."""

from __future__ import annotations

import pytest
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.facts import trace_facts
from gpumemtrace.analysis.init_stretch import find_init, without_long_init
from gpumemtrace.analysis.timeline import build_timeline
from gpumemtrace.cli.main import main
from gpumemtrace.schema import Kind

S = 1_000_000_000


def run(*, init_s: int = 60, spike: int = 0, fails: bool = False) -> TraceBuilder:
    """``init`` of so many seconds, in which 4 MiB stay; then ten steps of 1 s, up to 10 MiB."""
    builder = TraceBuilder().phase("init").alloc(1 << 40, 4 * MIB)
    if spike:
        builder.alloc(2 << 40, spike - 4 * MIB).free(2 << 40)
    if fails:
        builder.add(Kind.ALLOC_FAILED, size_bytes=MIB)
    # A thread that loads data has a phase of its own.
    builder.phase("data", thread=2, after_ns=init_s * S // 2)
    builder.phase("forward", after_ns=init_s * S // 2)
    for step in range(10):
        builder.alloc(3 << 40, 6 * MIB).phase("backward", after_ns=S).free(3 << 40)
        builder.step(step + 1).phase("forward")
    return builder


@pytest.mark.parametrize("batch_records", [1, 2, 7, 1 << 18])
def test_it_ends_where_the_thread_that_drives_goes_on(batch_records):
    init = find_init(run().trace(batch_records=batch_records))
    assert init is not None
    assert 60 * S <= init.end_ns < 60 * S + 10_000
    assert init.highest[0]["allocated"] == init.final[0]["allocated"] == 4 * MIB
    assert init.ends_highest and not init.has_failures


@pytest.mark.parametrize(
    ("options", "is_left_out"),
    [
        ({}, True),
        ({"init_s": 11}, True),
        ({"init_s": 9}, False),  # less than half of the time
        ({"spike": 9 * MIB}, True),  # the steps are higher
        ({"spike": 11 * MIB}, False),
        ({"fails": True}, False),
    ],
)
def test_what_is_left_out_holds_no_peak(options, is_left_out):
    assert (without_long_init(run(**options).trace()) is not None) == is_left_out


@pytest.mark.parametrize(
    "builder",
    [
        TraceBuilder().alloc(512, MIB).step(1),
        TraceBuilder().phase("forward").phase("init", after_ns=S).alloc(512, MIB).step(1),
        TraceBuilder().phase("init", after_ns=S).alloc(512, MIB),  # it never got further
    ],
)
def test_a_run_without_it_is_shown_whole(builder):
    assert without_long_init(builder.trace()) is None


def test_a_slice_that_begins_with_a_phase_begins_in_it():
    trace = run().trace()
    init = find_init(trace)
    assert init is not None
    part = trace.slice(time_ns=(init.end_ns, trace.time_span_ns[1] + 1))
    first = part.phases[0]
    assert first.path == ("forward",) and first.start_ns == init.end_ns and first.end_ns > 60 * S
    assert all(span.path != ("init",) for span in part.phases)
    whole, shown = build_timeline(trace), build_timeline(part)
    assert shown.devices[0].peak.size_bytes == whole.devices[0].peak.size_bytes == 10 * MIB
    # The step that goes on there had begun before; it ended there, and counts in the heading.
    assert shown.completed_steps == whole.completed_steps == len(trace.steps)
    assert trace_facts(part).steps == len(trace.steps)


@pytest.mark.parametrize("kind", ["timeline", "categories"])
def test_the_command_says_what_it_left_out_and_how_to_see_it(kind, tmp_path, capsys):
    path, picture = tmp_path / "run.gmt", tmp_path / "out.png"
    run().trace().save(path)
    arguments = ["plot", str(path), "--kind", kind, "-f", "-o", str(picture)]
    assert main(arguments) == 0
    told = capsys.readouterr().out.splitlines()[0]
    assert told == f"Wrote {picture} without init (60 s of 70 s): --time 0:70.01 shows it too"
    for part in (["--time", "0:70.01"], ["--steps", "0:3"]):
        assert main([*arguments, *part]) == 0
        assert capsys.readouterr().out.splitlines()[0] == f"Wrote {picture}"
