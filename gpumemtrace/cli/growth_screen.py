"""Growth in sentences, with the tables behind them."""

from __future__ import annotations

import numpy as np
from rich.console import Console

from gpumemtrace.analysis.growth import DeviceGrowth, Growth
from gpumemtrace.analysis.growth_owners import Owner
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.units import format_bytes

__all__ = ["describe_growth", "print_growth"]

_MOST_GROUPS = 10


def print_growth(growth: Growth, *, path: str | None, with_tables: bool) -> None:
    """Print the verdict on each device, and what it rests on."""
    console = make_console()
    if not growth.devices:
        console.print(f"{path}: stable: no CUDA memory was allocated", markup=False)
    for device in growth.devices:
        console.print(f"cuda:{device.device} {describe_growth(device)}", markup=False)
        if with_tables and len(device.retained.number):
            _print_retained(console, device)
            _print_survivors(console, device)


def describe_growth(device: DeviceGrowth) -> str:
    """Return the verdict on a device in a sentence or two."""
    steps = f"{device.steps:,} steps"
    judged = f"steps {device.from_step} to {device.to_step}"
    if device.verdict == "warming_up" and device.from_step is None:
        hint = "" if device.steps else " (no optimizer.step(), no gpumemtrace.step())"
        return f"still warming up: {steps} are too few to judge{hint}"
    if device.verdict == "warming_up":
        return f"still warming up: what is in use grows ever more slowly ({judged})"
    if device.verdict == "stable":
        return f"stable: what is in use does not grow from step to step ({judged})"
    if device.large_step is not None:
        large = device.large_step
        what = "stayed in use from then on" if large.kept else "were in use only in it"
        born = f", born in {large.phase}" if large.phase else ""
        return (
            f"one large step: step {large.step} took {format_bytes(large.extra_bytes)} more, which "
            f"{what}{born}; no growth otherwise ({judged})"
        )
    assert device.rate is not None
    rate = device.rate
    interval = f"{_rate(rate.low)} and {_rate(rate.high)}"
    parts = [
        f"{_rate(rate.value)} per step since step {device.first_step} "
        f"({rate.confidence:.0%} between {interval}, Theil-Sen over {judged})"
    ]
    if device.verdict == "fragmentation":
        parts[0] = f"fragmentation: reserved memory grows by {parts[0]}, what is in use does not"
    else:
        parts[0] = f"growing: {parts[0]}"
    parts += [_describe_owner(owner) for owner in device.owners]
    if device.steps_until_full is not None:
        parts.append(f"the device is full in {device.steps_until_full:,} steps")
    return "; ".join(parts)


def _rate(size_bytes: float) -> str:
    """Two decimals, as a rate is looked at more closely than a size."""
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:,.2f} {unit}"
    return f"{size_bytes:.0f} B"


def _describe_owner(owner: Owner) -> str:
    where = f"born in {owner.phase}" if owner.phase else "born outside of any phase"
    if owner.category != "unknown":
        where = f"{owner.category} {where}"
    if owner.size_bytes is None or owner.blocks_per_step is None:
        return (
            f"{where}: {_rate(owner.bytes_per_step)} per step, by blocks that replace smaller ones"
        )
    return (
        f"{where}: {_rate(owner.bytes_per_step)} per step, mostly {owner.blocks_per_step:.3g} x "
        f"{format_bytes(owner.size_bytes)}, thread {owner.thread}"
    )


def _print_retained(console: Console, device: DeviceGrowth) -> None:
    kept = device.retained
    first = 0 if device.from_step is None else int(np.searchsorted(kept.number, device.from_step))
    columns = ["born in", "category", f"step {kept.number[first]}", f"step {kept.number[-1]}", "+"]
    table = make_table(console, "\nin use at the end of", columns)
    change = kept.size_bytes[-1] - kept.size_bytes[first]
    order = np.lexsort((-kept.size_bytes[-1], -np.abs(change)))
    for group in order[:_MOST_GROUPS].tolist():
        row = kept.size_bytes[[first, -1], group]
        if row.any():
            table.add_row(
                kept.groups[group].phase or "(no phase)",
                kept.groups[group].category,
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
