"""The verdict on growth in a sentence or two, for every view."""

from __future__ import annotations

from gpumemtrace.analysis.growth import DeviceGrowth
from gpumemtrace.analysis.growth_owners import Keeper, Owner
from gpumemtrace.units import format_bytes, format_count

__all__ = ["describe_growth"]


def describe_growth(device: DeviceGrowth) -> str:
    """Return the verdict on a device in a sentence or two."""
    steps = format_count(device.steps, "step")
    judged = f"steps {device.from_step} to {device.to_step}"
    if device.verdict == "warming_up" and device.from_step is None:
        hint = "" if device.steps else " (no optimizer.step(), no gpumemtrace.step())"
        are = "is" if device.steps == 1 else "are"
        return f"still warming up: {steps} {are} too few to judge{hint}"
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
        left = format_count(device.steps_until_full, "step")
        when = f"in {left}" if device.steps_until_full else "by now"
        parts.append(f"the device is full {when}")
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
    parts = [
        f"{where}: {_rate(owner.bytes_per_step)} per step, mostly {owner.blocks_per_step:.3g} x "
        f"{format_bytes(owner.size_bytes)}"
    ]
    if owner.line is not None:
        parts.append(f"allocated at {_describe_keeper(owner.line)}")
    if owner.module is not None:
        parts.append(f"by module {_describe_keeper(owner.module)}")
    return ", ".join([*parts, f"thread {owner.thread}"])


def _describe_keeper(keeper: Keeper) -> str:
    """Say of how many blocks that is known, unless of all."""
    if keeper.blocks == keeper.of_blocks:
        return keeper.name
    if keeper.blocks == keeper.known:
        return f"{keeper.name} (known of {keeper.known:,} of {keeper.of_blocks:,} blocks)"
    of = format_count(keeper.known, "block")
    unknown = keeper.of_blocks - keeper.known
    rest = f", not known of {unknown:,}" if unknown else ""
    return f"{keeper.name} ({keeper.blocks:,} of {of}{rest})"
