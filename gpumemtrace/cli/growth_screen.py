"""Growth in sentences, with the tables behind them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from rich.console import Console

from gpumemtrace.analysis.growth import DeviceGrowth, Growth
from gpumemtrace.analysis.growth_wording import describe_growth
from gpumemtrace.analysis.owners import OWNERS
from gpumemtrace.analysis.retained_by import RetainedBy
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.cli.wording import GROUP_TITLES as TITLES
from gpumemtrace.units import format_bytes

__all__ = ["print_growth"]

_MOST_GROUPS = 10


def print_growth(
    growth: Growth, kept_by: Mapping[int, RetainedBy], *, path: str | None, with_tables: bool
) -> None:
    """Print the verdict on each device, and what it rests on.

    ``kept_by``: device -> what is in use in the groups that were asked for, if any were.
    """
    console = make_console()
    if not growth.devices:
        console.print(f"{path}: stable: no CUDA memory was allocated")
    for device in growth.devices:
        console.print(f"cuda:{device.device} {describe_growth(device)}")
        if with_tables and len(device.retained.number):
            if device.device in kept_by:
                _print_retained_by(console, kept_by[device.device])
            else:
                _print_retained(console, device)
            _print_survivors(console, device)


def _print_retained(console: Console, device: DeviceGrowth) -> None:
    kept = device.retained
    first = 0 if device.from_step is None else int(np.searchsorted(kept.number, device.from_step))
    columns = ["born in", "category", f"step {kept.number[first]}", f"step {kept.number[-1]}", "+"]
    table = make_table(console, "\nin use at the end of", columns)
    change = kept.size_bytes[-1] - kept.size_bytes[first]
    order = np.lexsort((-kept.size_bytes[-1], -np.abs(change)))
    order = order[np.any(kept.size_bytes[[first, -1]][:, order], axis=0)]
    for group in order[:_MOST_GROUPS].tolist():
        row = kept.size_bytes[[first, -1], group]
        table.add_row(
            kept.groups[group].phase or "(no phase)",
            kept.groups[group].category.replace("_", " "),
            *(format_bytes(int(size)) for size in (*row, change[group])),
        )
    console.print(table)
    if len(order) > _MOST_GROUPS:
        console.print(f"… showing {_MOST_GROUPS} of {len(order)}")


def _print_retained_by(console: Console, kept: RetainedBy) -> None:
    first, last = f"step {kept.first_step}", f"step {kept.last_step}"
    columns = [TITLES[kept.by], first, last, "+", "blocks", "+ blocks"]
    table = make_table(console, "\nin use at the end of", columns)
    for group in kept.groups[:_MOST_GROUPS]:
        table.add_row(
            group.name if kept.by in OWNERS else group.name.replace("_", " "),
            format_bytes(group.first_bytes),
            format_bytes(group.last_bytes),
            format_bytes(group.last_bytes - group.first_bytes),
            f"{group.last_blocks:,}",
            f"{group.last_blocks - group.first_blocks:,}",
        )
    console.print(table)
    if len(kept.groups) > _MOST_GROUPS:
        console.print(f"… showing {_MOST_GROUPS} of {len(kept.groups):,}; --json has all")


def _print_survivors(console: Console, device: DeviceGrowth) -> None:
    table = make_table(console, "\nborn so many steps ago, in use", ["steps ago", "bytes per step"])
    for ages in device.survivors:
        span = (
            str(ages.youngest) if ages.youngest == ages.oldest else f"{ages.youngest}-{ages.oldest}"
        )
        table.add_row(span, format_bytes(ages.bytes_per_step))
    console.print(table)
