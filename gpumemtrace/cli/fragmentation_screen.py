"""Fragmentation as a sentence and tables on a terminal, or plain text in a pipe."""

from __future__ import annotations

from rich.console import Console

from gpumemtrace.analysis.fragmentation import Fragmentation, PinningBlock
from gpumemtrace.analysis.fragmentation_wording import CAUSES, headline
from gpumemtrace.analysis.request_curve import PhaseNeed
from gpumemtrace.analysis.segments import FREE_CAUSES
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.units import bytes_or_unknown, format_bytes, format_count, format_duration

__all__ = ["print_fragmentation"]


def print_fragmentation(found: Fragmentation) -> None:
    """Print it on stdout."""
    console = make_console()
    console.print(headline(found))
    if not found.known:
        return
    _print_causes(console, found)
    _print_largest(console, found)
    _print_pinned(console, found)
    _print_needs(console, found)


def _print_causes(console: Console, found: Fragmentation) -> None:
    table = make_table(console, "\nReserved", ["", "bytes", "share", ""])
    table.columns[3].justify = "left"
    state = found.state
    rows = [("allocated", state.allocated_bytes, "in use")]
    if state.pending_bytes:
        rows.append(("pending", state.pending_bytes, "given back, in use on another stream"))
    rows += [(CAUSES[name][0], state.free_bytes[name], CAUSES[name][1]) for name in FREE_CAUSES]
    for label, size, meaning in rows:
        if size:
            share = f"{size / state.reserved_bytes:.1%}"
            table.add_row(label, format_bytes(size), share, meaning)
    console.print(table)
    if found.index is not None:
        console.print(
            f"Fragmentation index {found.index:.2f} (0: the free memory of the main stream is one "
            "block; near 1: many small ones)."
        )


def _print_largest(console: Console, found: Fragmentation) -> None:
    columns = ["stream", "from the cache", "with the device's free", "after empty_cache"]
    table = make_table(console, "\nLargest request that would succeed", columns)
    for largest in found.largest:
        table.add_row(
            _stream(largest.stream),
            format_bytes(largest.cached_bytes),
            bytes_or_unknown(largest.with_device_bytes),
            bytes_or_unknown(largest.after_flush_bytes),
        )
    console.print(table)
    if found.device_free_bytes is not None:
        console.print(f"The device has {format_bytes(found.device_free_bytes)} free.")


def _print_pinned(console: Console, found: Fragmentation) -> None:
    if not found.pinned:
        return
    shown = f"{len(found.pinned)} of {found.pinned_segments:,}"
    columns = ["segment", "size", "free", "pinned by", "oldest block", "born in", "age"]
    table = make_table(console, f"\nSegments that blocks in use pin ({shown})", columns)
    table.columns[5].justify = "left"
    for segment in found.pinned:
        oldest = segment.blocks[0]
        table.add_row(
            f"{segment.base:#x}",
            format_bytes(segment.size_bytes),
            format_bytes(segment.free_bytes),
            f"{segment.block_count:,} block{'s' * (segment.block_count != 1)}",
            format_bytes(oldest.size_bytes),
            _birth(oldest),
            format_count(oldest.age_steps, "step") if oldest.age_steps else _age(oldest),
        )
    console.print(table)


def _print_needs(console: Console, found: Fragmentation) -> None:
    if not found.needs:
        return
    columns = ["phase", "largest request", "reserved", "largest in the cache", "cache too small"]
    table = make_table(console, "\nWhat phases ask for, as each begins: first time, last", columns)
    table.columns[4].justify = "left"
    for need in found.needs:
        table.add_row(
            need.phase,
            format_bytes(need.largest_request_bytes),
            f"{format_bytes(need.reserved_first_bytes)}, {format_bytes(need.reserved_last_bytes)}",
            f"{format_bytes(need.largest_first_bytes)}, {format_bytes(need.largest_last_bytes)}",
            _crossing(need),
        )
    console.print(table)


def _crossing(need: PhaseNeed) -> str:
    if need.first_fail_step is not None:
        return f"would fail in step {need.first_fail_step}"
    if need.first_flush_step is not None:
        return f"needs the cache flushed in step {need.first_flush_step}"
    if need.first_miss_step is not None:
        times = "once" if need.misses == 1 else f"{need.misses:,} times"
        return f"{times}, first in step {need.first_miss_step}"
    return ""


def _birth(block: PinningBlock) -> str:
    phase = f"{block.phase}, " if block.phase else ""
    return f"{phase}step {block.step}, thread {block.thread}"


def _age(block: PinningBlock) -> str:
    return format_duration(block.age_ns / 1e9)


def _stream(stream: int) -> str:
    return "default" if stream == 0 else f"{stream:#x}"
