"""Failed requests as sentences and tables on a terminal, or plain text in a pipe."""

from __future__ import annotations

from rich.console import Console

from gpumemtrace.analysis.fragmentation_wording import CAUSES as FREE
from gpumemtrace.analysis.gap_results import GAPS, Gaps
from gpumemtrace.analysis.oom import CAUSES, FailedRequest, LargeGroup, Oom, OutsideFailure
from gpumemtrace.cli.console import make_console, make_table
from gpumemtrace.units import format_bytes, format_duration

__all__ = ["print_oom"]

_LABELS = {
    "pending": "pending free",
    "outside": "outside PyTorch",
    "others": "other processes",
    "unattributed": "of no process",
    "device_free": "free on the device",
}


def print_oom(oom: Oom) -> None:
    """Print what was found on stdout."""
    console = make_console()
    if not oom.failed and oom.outside is None:
        console.print("no request failed")
    for i, request in enumerate(oom.requests):
        if i:
            console.print()
        _print_request(console, request)
    if oom.failed > len(oom.requests):
        console.print(
            f"\n… showing the first {len(oom.requests) - 1} and the last of {oom.failed:,} failed "
            "requests."
        )
    if oom.failed:
        last = "The program ended with the last one." if oom.died_of_it else "The program went on."
        console.print(f"\n{last}")
    if oom.outside is not None:
        _print_outside(console, oom.outside)


def _print_request(console: Console, request: FailedRequest) -> None:
    place = request.place
    phase = f"{'/'.join(place.phase)}, " if place.phase else ""
    stream = f", stream {request.stream:#x}" if request.stream else ""
    console.print(
        f"{format_bytes(request.request_bytes)} failed on cuda:{request.device}{stream}, in "
        f"{phase}step {place.step}, at {format_duration(place.time_ns / 1e9)}",
        markup=False,
        style="bold",
    )
    console.print(f"Cause: {request.cause.replace('_', ' ')}: {CAUSES[request.cause]}.")
    for line in _figures(request):
        console.print(line)
    if request.gaps is not None:
        _print_gaps(console, request.gaps)
    _print_groups(console, request.groups)
    _print_helps(console, request)


def _figures(request: FailedRequest) -> list[str]:
    lines = []
    found = request.found
    if found is not None:
        lines.append(
            f"It found {_or_unknown(found.device_free_bytes)} free on the device and "
            f"{format_bytes(found.cached_bytes)} cached, the largest block that it could take "
            f"{format_bytes(found.largest_cached_bytes)}; a flush could give back "
            f"{format_bytes(found.releasable_bytes)} in {found.releasable_segments:,} segments."
        )
    if request.missing_bytes is not None:
        lines.append(
            f"After the flush the device had {_or_unknown(request.device_free_bytes)} free; "
            f"{format_bytes(request.needed_bytes)} were needed, "
            f"{format_bytes(request.missing_bytes)} were missing."
        )
    if request.free_bytes is not None:
        sizes = sorted(request.free_bytes.items(), key=lambda part: -part[1])
        left = [f"{FREE[cause][0]} {format_bytes(size)}" for cause, size in sizes if size]
        lines.append(f"Still cached then: {', '.join(left) or 'nothing'}.")
    return lines


def _print_gaps(console: Console, gaps: Gaps) -> None:
    table = make_table(console, "\nJust before", ["", "bytes", "sum up to here"])
    ends_at = {
        "rounding": ("allocated", gaps.allocated),
        "pending": ("active", gaps.active),
        "cached": ("reserved", gaps.reserved),
        "unattributed": ("device used", gaps.device_used),
        "device_free": ("capacity", gaps.capacity),
    }
    table.add_row("requested", format_bytes(gaps.requested), "")
    for name in GAPS:
        size = getattr(gaps, name)
        line, total = ends_at.get(name, ("", None))
        if size is not None or name in ("cached", "outside", "device_free"):
            end = "" if total is None else f"{line} {format_bytes(total)}"
            table.add_row(_LABELS.get(name, name), _or_unknown(size), end)
    console.print(table)


def _print_groups(console: Console, groups: tuple[LargeGroup, ...]) -> None:
    if not groups:
        return
    columns = ["largest in use", "born in", "steps", "blocks", "in all"]
    table = make_table(console, "", columns)
    for group in groups:
        first, last = group.first_step, group.last_step
        table.add_row(
            group.category.replace("_", " "),
            group.phase or "no phase",
            str(first) if first == last else f"{first} to {last}",
            f"{group.blocks:,} x {format_bytes(group.size_bytes)}",
            format_bytes(group.total_bytes),
        )
    console.print(table)


def _print_helps(console: Console, request: FailedRequest) -> None:
    if not request.helps:
        return
    table = make_table(
        console, "\nWhat would have helped", ["change", "at most", "enough", "since"]
    )
    table.columns[3].justify = "left"
    for column in table.columns:
        column.no_wrap = False
    for found in request.helps:
        enough = "yes" if found.is_enough else "no"
        table.add_row(found.change, format_bytes(found.size_bytes), enough, found.evidence)
    console.print(table)


def _print_outside(console: Console, found: OutsideFailure) -> None:
    console.print(
        f"OOM outside PyTorch: device-free {format_bytes(found.device_free_bytes)}, "
        f"cached-free {format_bytes(found.cached_bytes)} on cuda:{found.device}, in step "
        f"{found.place.step}. The program ended with {found.error}",
        markup=False,
    )


def _or_unknown(size: int | None) -> str:
    return "not known" if size is None else format_bytes(size)
