"""``gpumemtrace times``: how long steps and phases take, and why some steps are slow."""

from __future__ import annotations

import argparse
import json

from gpumemtrace.cli.options import add_json, add_quiet, add_trace

__all__ = ["add_parser", "run"]

_EPILOG = """\
A slow step took longer than the median by 5 robust standard deviations and by a tenth.
Time in the driver is what the allocator spent there for want of a cached block: for segments, for
retries (the cache is flushed, then it tries again), for empty_cache.

examples:
  gpumemtrace times train.gmt
  gpumemtrace times --json train.gmt | jq '.slow[] | select(.cause == "retry")'
"""


def add_parser(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """Add this command's parser and return it."""
    parser = subparsers.add_parser(
        "times",
        help="how long steps and phases take, slow steps and retries",
        description="Show the times of steps and phases, what the allocator's calls of the driver "
        "took, which slow steps they explain, and what the recording cost.",
        epilog=_EPILOG,
    )
    add_trace(parser)
    add_json(parser)
    add_quiet(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Print the times."""
    from gpumemtrace.analysis.driver_time import DriverFinder
    from gpumemtrace.analysis.facts import simulated_run
    from gpumemtrace.analysis.lines import feed_lines
    from gpumemtrace.analysis.recorder_cost import CostFinder
    from gpumemtrace.analysis.step_times import time_steps
    from gpumemtrace.cli.reading import open_trace, tell_damage
    from gpumemtrace.cli.times_screen import print_times

    trace = open_trace(args.trace, quiet=args.quiet)
    driver, cost = DriverFinder(trace), CostFinder(trace)
    feed_lines(trace, driver, cost)
    times = time_steps(trace, driver.finish())
    tell_damage(trace)
    is_simulated = simulated_run(trace.run_record) is not None
    if args.json:
        recorder = {"recorder": cost.finish().to_dict()}
        told = {"path": trace.path, "simulated": is_simulated} | times.to_dict() | recorder
        print(json.dumps(told, indent=2))
    else:
        print_times(times, cost.finish(), path=trace.path, is_simulated=is_simulated)
    return 0
