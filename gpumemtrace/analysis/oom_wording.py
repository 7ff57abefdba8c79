"""A failed request in sentences, for every view."""

from __future__ import annotations

from gpumemtrace.analysis.fragmentation_wording import CAUSES as FREE
from gpumemtrace.analysis.oom_results import CAUSES, FailedRequest, OutsideFailure
from gpumemtrace.units import bytes_or_unknown, format_bytes, format_count, format_duration

__all__ = ["describe_cause", "describe_figures", "describe_outside", "describe_request"]


def describe_request(request: FailedRequest) -> str:
    """Return ``132.0 MiB failed on cuda:0, in backward, step 13, at 1.33 s``."""
    place = request.place
    phase = f"{'/'.join(place.phase)}, " if place.phase else ""
    stream = f", stream {request.stream:#x}" if request.stream else ""
    return (
        f"{format_bytes(request.request_bytes)} failed on cuda:{request.device}{stream}, in "
        f"{phase}step {place.step}, at {format_duration(place.time_ns / 1e9)}"
    )


def describe_cause(request: FailedRequest) -> str:
    """Return the name of the cause and what it means."""
    return f"{request.cause.replace('_', ' ')}: {CAUSES[request.cause]}."


def describe_figures(request: FailedRequest) -> list[str]:
    """Return what the request found, what was missing, and what stayed in the cache."""
    lines = []
    found = request.found
    if found is not None:
        lines.append(
            f"It found {bytes_or_unknown(found.device_free_bytes)} free on the device and "
            f"{format_bytes(found.cached_bytes)} cached, the largest block that it could take "
            f"{format_bytes(found.largest_cached_bytes)}; a flush could give back "
            f"{format_bytes(found.releasable_bytes)} in "
            f"{format_count(found.releasable_segments, 'segment')}."
        )
    if request.missing_bytes is not None:
        lines.append(
            f"After the flush the device had {bytes_or_unknown(request.device_free_bytes)} free; "
            f"{format_bytes(request.needed_bytes)} were needed, "
            f"{format_bytes(request.missing_bytes)} were missing."
        )
    if request.free_bytes is not None:
        sizes = sorted(request.free_bytes.items(), key=lambda part: -part[1])
        left = [f"{FREE[cause][0]} {format_bytes(size)}" for cause, size in sizes if size]
        lines.append(f"Still cached then: {', '.join(left) or 'nothing'}.")
    return lines


def describe_outside(found: OutsideFailure) -> str:
    """Return what was free when something outside PyTorch found no memory."""
    return (
        f"OOM outside PyTorch: device-free {format_bytes(found.device_free_bytes)}, "
        f"cached-free {format_bytes(found.cached_bytes)} on cuda:{found.device}, in step "
        f"{found.place.step}. The program ended with {found.error}"
    )
