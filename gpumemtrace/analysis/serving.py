"""What a request would get: a cached block, new memory from the driver, or neither.

By the rules of PyTorch's caching allocator (``DeviceCachingAllocator::malloc``): first a cached
block of the request's stream and pool, then a new segment, then the cache goes back to the driver
and a new segment is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpumemtrace.analysis.segments import SegmentTotals

__all__ = [
    "LargestRequest",
    "RequestOutcome",
    "largest_request",
    "new_memory_bytes",
    "serve",
]

_MIB = 1 << 20
# PyTorch's kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer and kRoundLarge.
_SMALL_REQUEST = 1 * _MIB
_SMALL_SEGMENT = 2 * _MIB
_ROUNDED_LARGE = 10 * _MIB
_LARGE_SEGMENT = 20 * _MIB
_SEGMENT_ROUNDING = 2 * _MIB


@dataclass(frozen=True)
class LargestRequest:
    """The largest request of a stream that would succeed, by what it takes.

    ``cached_bytes``: from the cache, without a new cudaMalloc. ``with_device_bytes``: also with
    what the device still has free; ``after_flush_bytes``: also after the cache has gone back to
    the driver. The last two are None where the trace does not tell what the device has free.
    """

    stream: int
    cached_bytes: int
    with_device_bytes: int | None
    after_flush_bytes: int | None


@dataclass(frozen=True)
class RequestOutcome:
    """What would happen to one request, and the figures that decide it.

    ``outcome``: ``cached`` (a cached block fits), ``new_segment`` (the device has enough free),
    ``after_flush`` (it has once the cache has gone back), ``fails``; ``unknown`` where no cached
    block fits and the trace does not tell what the device has free. ``cached_bytes``: free in all
    segments; ``largest_cached_bytes``: the largest block that the request could take;
    ``releasable_bytes`` in ``releasable_segments``: what a flush would return.
    """

    outcome: str
    request_bytes: int
    stream: int
    device_free_bytes: int | None
    cached_bytes: int
    largest_cached_bytes: int
    releasable_segments: int
    releasable_bytes: int


def largest_request(
    state: SegmentTotals, *, stream: int | None = None, device_free_bytes: int | None = None
) -> LargestRequest:
    """Return the largest request of ``stream`` (by default the main one) that would succeed."""
    stream = state.main_stream if stream is None else stream
    small, large = _largest_cached(state, stream)
    cached = large if large > _SMALL_REQUEST else min(small, _SMALL_REQUEST)
    with_device = after_flush = None
    if device_free_bytes is not None:
        tail, kept_tail = _tails(state, stream)
        with_device = max(cached, _largest_new(device_free_bytes, tail))
        released = device_free_bytes + state.releasable_bytes
        after_flush = max(with_device, _largest_new(released, kept_tail))
    return LargestRequest(stream, cached, with_device, after_flush)


def serve(
    state: SegmentTotals,
    request_bytes: int,
    *,
    stream: int | None = None,
    device_free_bytes: int | None = None,
) -> RequestOutcome:
    """Say what would happen to a request of ``stream`` (by default the main one)."""
    stream = state.main_stream if stream is None else stream
    small, large = _largest_cached(state, stream)
    rounded = -(-request_bytes // 512) * 512
    fitting = small if rounded <= _SMALL_REQUEST else large
    if rounded <= fitting:
        outcome = "cached"
    elif device_free_bytes is None:
        outcome = "unknown"
    else:
        tail, kept_tail = _tails(state, stream)
        if _can_be_new(rounded, device_free_bytes, tail):
            outcome = "new_segment"
        elif _can_be_new(rounded, device_free_bytes + state.releasable_bytes, kept_tail):
            outcome = "after_flush"
        else:
            outcome = "fails"
    return RequestOutcome(
        outcome=outcome,
        request_bytes=request_bytes,
        stream=stream,
        device_free_bytes=device_free_bytes,
        cached_bytes=state.cached_bytes,
        largest_cached_bytes=fitting,
        releasable_segments=state.releasable_segments,
        releasable_bytes=state.releasable_bytes,
    )


def new_memory_bytes(
    request_bytes: int, state: SegmentTotals | None = None, *, stream: int | None = None
) -> int:
    """Return what the driver has to give for a request that no cached block serves.

    ``state``: after the cache has gone back; with it, an expandable segment of ``stream`` (by
    default the main one) grows at its end.
    """
    tail = None
    if state is not None:
        tail = _tails(state, state.main_stream if stream is None else stream)[1]
    return _new_bytes(-(-request_bytes // 512) * 512, tail)


def _largest_cached(state: SegmentTotals, stream: int) -> tuple[int, int]:
    """Return the largest free block of the pool for small requests, and of the other."""
    largest = [0, 0]
    for group in state.groups:
        if group.stream == stream and not group.is_private:
            i = 0 if group.is_small else 1
            largest[i] = max(largest[i], group.largest_free_bytes)
    return largest[0], largest[1]


def _tails(state: SegmentTotals, stream: int) -> tuple[int | None, int | None]:
    """Return the largest free end of an expandable segment, now and after a flush.

    None: the stream has no expandable segment for large requests.
    """
    for group in state.groups:
        is_its = group.stream == stream and not group.is_private and not group.is_small
        if is_its and group.is_expandable:
            return group.largest_tail_bytes, group.kept_tail_bytes
    return None, None


def _largest_new(free_bytes: int, tail: int | None) -> int:
    """Return the largest request that memory from the driver could serve."""
    if tail is not None:
        pages = free_bytes // _LARGE_SEGMENT * _LARGE_SEGMENT
        return tail + pages if pages else 0
    whole = free_bytes // _SEGMENT_ROUNDING * _SEGMENT_ROUNDING
    if whole >= _ROUNDED_LARGE:
        return whole
    return _SMALL_REQUEST if whole >= _SMALL_SEGMENT else 0


def _can_be_new(rounded: int, free_bytes: int, tail: int | None) -> bool:
    return _new_bytes(rounded, tail) <= free_bytes


def _new_bytes(rounded: int, tail: int | None) -> int:
    if rounded <= _SMALL_REQUEST:
        return _SMALL_SEGMENT
    if tail is not None:
        return -(-(rounded - tail) // _LARGE_SEGMENT) * _LARGE_SEGMENT
    if rounded < _ROUNDED_LARGE:
        return _LARGE_SEGMENT
    return -(-rounded // _SEGMENT_ROUNDING) * _SEGMENT_ROUNDING
