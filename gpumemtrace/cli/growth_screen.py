"""Growth in sentences, with the tables behind them."""

from __future__ import annotations

import numpy as np
from rich.console import Console

from gpumemtrace.analysis.growth import DeviceGrowth, Growth
from gpumemtrace.analysis.growth_wording import describe_growth
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.units import format_bytes

__all__ = ["print_growth"]

_MOST_GROUPS = 10


def print_growth(growth: Growth, *, path: str | None, with_tables: bool) -> None:
    """Print the verdict on each device, and what it rests on."""
    console = make_console()
    if not growth.devices:
        console.print(f"{path}: stable: no CUDA memory was allocated")
    for device in growth.devices:
        console.print(f"cuda:{device.device} {describe_growth(device)}")
        if with_tables and len(device.retained.number):
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


def _print_survivors(console: Console, device: DeviceGrowth) -> None:
    table = make_table(console, "\nborn so many steps ago, in use", ["steps ago", "bytes per step"])
    for ages in device.survivors:
        span = (
            str(ages.youngest) if ages.youngest == ages.oldest else f"{ages.youngest}-{ages.oldest}"
        )
        table.add_row(span, format_bytes(ages.bytes_per_step))
    console.print(table)
