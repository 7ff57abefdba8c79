"""Times of steps and phases as tables and lines."""

from __future__ import annotations

import numpy as np
from rich.console import Console

from gpumemtrace.analysis.recorder_cost import RecorderCost
from gpumemtrace.analysis.step_times import SlowStep, StepTimes
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.units import format_bytes, format_count, format_duration

__all__ = ["print_times"]

_MOST_LINES = 10
_CAUSES = {
    "retry": "retries: the cache was flushed for a request that found no room",
    "empty_cache": "empty_cache",
    "segments": "segments taken from the driver",
    None: "not the allocator",
}


def print_times(
    times: StepTimes, cost: RecorderCost, *, path: str | None, is_simulated: bool = False
) -> None:
    """Print the times of steps, phases and the driver, slow steps, and the recorder's cost."""
    console = make_console()
    if not len(times.number):
        console.print(f"{path}: no step was completed")
    else:
        console.print(
            f"{path}: {format_count(len(times.number), 'step')}, median {_ns(times.median_ns)}, "
            f"95 % below {_ns(times.p95_ns)}, {len(times.slow):,} slow",
        )
        if times.merged_steps:
            console.print(
                f"{format_count(times.merged_steps, 'more step')} had to share summaries to keep "
                "the file small: how long each took is not known."
            )
        if is_simulated:
            console.print("The run was simulated: these are times of a CPU, not of a GPU.")
        _print_phases(console, times)
        _print_slow(console, times)
    _print_flushes(console, times)
    _print_cost(console, cost)


def _ns(duration_ns: float) -> str:
    return format_duration(duration_ns / 1e9)


def _print_phases(console: Console, times: StepTimes) -> None:
    columns = ["phase", "median", "95 %", "share", "in driver", "segments", "retries", "emptied"]
    table = make_table(console, "\ntime in each step", columns)
    total = int(times.phase_ns.sum())
    for i, name in enumerate([*times.phases, None]):
        mine = times.phase_ns[:, i]
        use = times.driver.by_phase.get(name)
        if mine.any() or use is not None:
            table.add_row(
                name or "(no phase)",
                _ns(float(np.median(mine))),
                _ns(float(np.percentile(mine, 95))),
                f"{mine.sum() / max(total, 1):.1%}",
                "" if use is None else _ns(use.duration_ns),
                "" if use is None else f"{use.segments:,}",
                "" if use is None else f"{use.retries:,}",
                "" if use is None else f"{use.emptied:,}",
            )
    console.print(table)
    console.print("in driver and what follows: in the whole run")


def _print_slow(console: Console, times: StepTimes) -> None:
    if not times.slow:
        return
    columns = ["slow step", "took", "beyond median", "mostly in", "in driver", "because of"]
    table = make_table(console, "", columns)
    table.columns[3].justify = table.columns[5].justify = "left"
    slowest = sorted(times.slow, key=lambda step: -step.extra_ns)[:_MOST_LINES]
    for step in sorted(slowest, key=lambda step: step.step):
        table.add_row(
            f"{step.step:,}",
            _ns(step.duration_ns),
            f"+{_ns(step.extra_ns)}",
            step.phase or "(no phase)",
            _ns(step.driver.duration_ns),
            _because(step),
        )
    console.print(table)
    if len(times.slow) > _MOST_LINES:
        console.print(f"… showing the slowest {_MOST_LINES} of {len(times.slow):,}")


def _because(step: SlowStep) -> str:
    return _CAUSES[step.cause]


def _print_flushes(console: Console, times: StepTimes) -> None:
    flushes = times.driver.flushes
    if not flushes:
        return
    columns = ["cache flushed", "at", "took", "step", "phase", "for"]
    table = make_table(console, "", columns)
    table.columns[4].justify = "left"
    for flush in flushes[:_MOST_LINES]:
        size = "" if flush.size_bytes is None else format_bytes(flush.size_bytes)
        table.add_row(
            flush.kind,
            _ns(flush.time_ns),
            _ns(flush.duration_ns),
            f"{flush.step:,}",
            flush.phase or "(no phase)",
            size,
        )
    console.print(table)
    if len(flushes) > _MOST_LINES:
        console.print(f"… showing {_MOST_LINES} of {len(flushes):,}; --json has all")


def _print_cost(console: Console, cost: RecorderCost) -> None:
    parts = [format_count(cost.events, "event")]
    if cost.events_per_s is not None and cost.hook_share is not None:
        parts[0] += f" ({cost.events_per_s:,.0f}/s)"
        parts.append(
            f"hook about {format_duration(cost.hook_s)} ({cost.hook_share:.2%} of the run, by the "
            "ns per event of an H200's host)"
        )
    if cost.drain_cpu_s is not None and cost.drain_share is not None:
        drain = f"drain thread {format_duration(cost.drain_cpu_s)} of a CPU"
        parts.append(f"{drain} ({cost.drain_share:.2%})")
    if cost.ring_high_water is not None and cost.ring_capacity:
        parts.append(f"ring at most {cost.ring_high_water / cost.ring_capacity:.1%} full")
    if cost.bytes_per_event is not None:
        written = f"{format_bytes(cost.bytes_written)} written"
        parts.append(f"{written} ({cost.bytes_per_event:.2f} bytes per event)")
    if cost.stalls:
        times = "once" if cost.stalls == 1 else f"{cost.stalls:,} times"
        parts.append(
            f"the program waited {times} for room in the ring, {format_duration(cost.stalled_s)}"
        )
    parts.append(f"{format_count(cost.dropped_events, 'event')} lost")
    console.print(f"\nThe recording: {'; '.join(parts)}.")
