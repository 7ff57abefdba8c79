"""A comparison in one sentence, for every view."""

from __future__ import annotations

from gpumemtrace.analysis.compare import Comparison, DeviceComparison, Difference
from gpumemtrace.analysis.endings import describe_out_of_memory
from gpumemtrace.analysis.group_differences import GroupDifference
from gpumemtrace.units import format_bytes

__all__ = ["describe_difference", "describe_share", "describe_sizes"]

# Timings of one run are no better than this.
_NO_DIFFERENCE = 0.005
_TENFOLD = 9.0


def describe_difference(found: Comparison, device: DeviceComparison) -> str:
    """What is different on one device, in one sentence: first of all what ran out of memory."""
    return f"cuda:{device.device}: {_out_of_memory(device)}{_difference(found, device)}"


def _out_of_memory(device: DeviceComparison) -> str:
    parts = [
        f"{side} ran out of memory ({describe_out_of_memory(failed)})"
        for side, failed in zip("AB", device.out_of_memory, strict=True)
        if failed is not None
    ]
    return f"{' and '.join(parts)}; " if parts else ""


def _difference(found: Comparison, device: DeviceComparison) -> str:
    peak = device.peaks["allocated"]
    if peak.a is None or peak.b is None:
        side = "A" if peak.b is None else "B"
        return f"only {side} allocated anything there."
    if peak.change == 0:
        memory = f"B uses as much memory as A: {format_bytes(peak.b)} at the peak"
    else:
        less = "less" if peak.b < peak.a else "more"
        share = describe_share(peak)
        memory = (
            f"B uses {less} memory: {format_bytes(peak.b)} allocated at the peak instead of "
            f"{format_bytes(peak.a)}{share and f' ({share})'}"
        )
    return f"{memory}{_time_clause(found.step_time_s, memory_is_less=peak.b < peak.a)}."


def _time_clause(time: Difference | None, *, memory_is_less: bool) -> str:
    if time is None or time.share is None or time.b is None:
        return ""
    if abs(time.share) < _NO_DIFFERENCE:
        return ", and a step takes as long"
    is_longer = time.share > 0
    word = "but" if is_longer == memory_is_less else "and"
    return f", {word} a step takes {abs(time.share):.0%} {'longer' if is_longer else 'less time'}"


def describe_share(difference: Difference) -> str:
    """The change as a part of A, such as ``-40.0%``; from tenfold on ``x 12``."""
    share = difference.share
    if not share:
        return ""
    return f"{share:+.1%}" if share < _TENFOLD else f"x {share + 1:,.0f}"


def describe_sizes(group: GroupDifference, *, with_count: bool = True) -> str:
    """The size of a group: ``4.0 MiB``, or between which two it has so many: ``2.1 to 4.0 MiB``."""
    smallest, largest = format_bytes(group.size_bytes), format_bytes(group.largest_size_bytes)
    if group.sizes == 1:
        return smallest
    if smallest.split()[1] == largest.split()[1]:
        smallest = smallest.split()[0]
    return f"{smallest} to {largest}" + (f" ({group.sizes:,} sizes)" if with_count else "")
