"""Why a request failed: the lines at that instant, who held the memory, what would have helped.

Every figure is of this trace. One pass looks at all failed requests, after `TraceData.records` has
found them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.categories import CATEGORY_NAMES, Categories, find_categories
from gpumemtrace.analysis.endings import ErrorAtEnd, find_error
from gpumemtrace.analysis.facts import device_facts, uses_expandable_segments, world_size
from gpumemtrace.analysis.gap_results import DeviceGaps, Place
from gpumemtrace.analysis.lines import feed_lines
from gpumemtrace.analysis.live_set import LiveSet
from gpumemtrace.analysis.oom_help import (
    choose_cause,
    find_helps,
    name_private_pools,
    unusable_bytes,
)
from gpumemtrace.analysis.oom_results import (
    CAUSES,
    FailedRequest,
    Help,
    LargeGroup,
    Oom,
    OutsideFailure,
)
from gpumemtrace.analysis.oom_walk import FailureWalk, Scene
from gpumemtrace.analysis.serving import new_memory_bytes, serve
from gpumemtrace.schema import Kind
from gpumemtrace.trace_data import TraceData

__all__ = [
    "CAUSES",
    "FailedRequest",
    "Help",
    "LargeGroup",
    "Oom",
    "OutsideFailure",
    "find_oom",
]

_MOST_GROUPS = 10
_MOST_EXPLAINED = 20
# What a library also says of other faults: a sign only when hardly anything was free.
_PERHAPS_OUT_OF_MEMORY = ("unhandled cuda error", "unhandled system error", "internal error")
_HARDLY_ANY = 0.1  # of the device's memory


def find_oom(trace: TraceData, *, categories: Categories | None = None) -> Oom:
    """Explain each request that failed, and an end for want of memory outside PyTorch.

    ``categories``: of this trace, where the caller has them already.
    """
    failed = trace.records(Kind.ALLOC_FAILED)
    count = len(failed["event"])
    error = find_error(trace)
    is_pytorch = error is not None and error.is_pytorch_out_of_memory
    if not count and (is_pytorch or error is None or not _is_perhaps_memory(error)):
        return Oom(0, False, (), None)
    rows = list(range(count))
    if count > _MOST_EXPLAINED:
        rows = [*rows[: _MOST_EXPLAINED - 1], count - 1]
    requests = [{name: int(column[row]) for name, column in failed.items()} for row in rows]
    walk = FailureWalk(trace, requests, tells_categories=categories is None)
    stream = feed_lines(trace.whole, walk)
    devices = {device.device: device for device in walk.gaps.finish(stream)}
    explained = []
    if requests:
        categories = categories or walk.categories() or find_categories(trace)
        explained = [
            _explain(trace, request, walk.scenes[i], devices.get(request["device"]), categories)
            for i, request in enumerate(requests)
        ]
    outside = None if is_pytorch or error is None else _outside_failure(error, walk)
    return Oom(count, count > 0 and is_pytorch, tuple(explained), outside)


def _explain(
    trace: TraceData,
    request: dict[str, int],
    scene: Scene,
    device: DeviceGaps | None,
    categories: Categories,
) -> FailedRequest:
    size, stream = request["size_bytes"], request["stream"]
    free = _device_free(request, scene)
    needed = new_memory_bytes(size, scene.after, stream=stream)
    missing = None if free is None else needed - free
    outside = _outside_bytes(trace, request["device"], free, scene, device)
    lacking = {} if scene.after is None else unusable_bytes(scene.after, stream)
    lacking["outside"] = outside or 0
    assert scene.blocks is not None
    blocks = _with_categories(scene.blocks, categories)
    phase = trace.phase_name(request["phase"])
    expandable = uses_expandable_segments(trace.run_record)
    helps = find_helps(
        blocks,
        lacking,
        request_bytes=size,
        step=request["step"],
        phase=phase,
        device_free_bytes=free,
        missing_bytes=missing,
        expandable_segments=expandable,
        world_size=world_size(trace.run_record),
        private_pools="" if scene.after is None else name_private_pools(scene.after),
    )
    path = request["phase_path"]
    return FailedRequest(
        device=request["device"],
        request_bytes=size,
        stream=stream,
        place=Place(
            request["time_ns"],
            request["event"],
            request["step"],
            trace.phase_paths[path] if path >= 0 else None,
        ),
        cause=choose_cause(missing, lacking),
        gaps=scene.gaps,
        found=None
        if scene.before is None
        else serve(scene.before, size, stream=stream, device_free_bytes=_free_before(free, scene)),
        device_free_bytes=free,
        needed_bytes=needed,
        missing_bytes=None if missing is None else max(missing, 0),
        free_bytes=None if scene.after is None else dict(scene.after.free_bytes),
        outside_bytes=outside,
        groups=_groups(trace, blocks),
        helps=helps,
    )


def _device_free(request: dict[str, int], scene: Scene) -> int | None:
    """Return what the driver said right then. 0 there may mean that it did not say."""
    if request["extra"]:
        return request["extra"]
    if scene.gaps_after is None or scene.gaps_after.device_free is None:
        return None
    return max(scene.gaps_after.device_free, 0)


def _free_before(free: int | None, scene: Scene) -> int | None:
    """Return what the device had free before the allocator gave its cache back."""
    if free is None or scene.before is None or scene.after is None:
        return None
    return max(free - (scene.before.reserved_bytes - scene.after.reserved_bytes), 0)


def _outside_bytes(
    trace: TraceData, number: int, free: int | None, scene: Scene, device: DeviceGaps | None
) -> int | None:
    """Return what is in use outside PyTorch beyond the baseline, and by other processes."""
    after = scene.gaps_after
    if device is None or device.baseline is None or free is None or after is None:
        return None
    capacity = after.capacity or device_facts(trace.run_record, number).capacity_bytes
    if capacity is None or after.reserved is None:
        return None
    first = device.baseline.gaps
    at_first = (first.outside or 0) + (first.unattributed or 0)
    return max(capacity - free - after.reserved - at_first, 0)


def _with_categories(blocks: LiveSet, categories: Categories) -> LiveSet:
    columns = {name: getattr(blocks, name) for name in blocks.__dataclass_fields__}
    return LiveSet(**(columns | {"category_id": categories.category_id[blocks.alloc]}))


def _groups(trace: TraceData, blocks: LiveSet) -> tuple[LargeGroup, ...]:
    keys = np.stack(
        [
            blocks.category_id.astype(np.int64),
            blocks.birth_phase.astype(np.int64),
            blocks.requested_bytes,
        ],
        axis=1,
    )
    kinds, which, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    which = which.reshape(-1)
    order = np.argsort(-kinds[:, 2] * count, kind="stable")[:_MOST_GROUPS]
    return tuple(_group(trace, kinds[i], blocks.birth_step[which == i]) for i in order)


def _group(
    trace: TraceData, kind: npt.NDArray[np.int64], steps: npt.NDArray[np.int64]
) -> LargeGroup:
    return LargeGroup(
        category=CATEGORY_NAMES[int(kind[0])],
        phase=trace.phase_name(int(kind[1])),
        size_bytes=int(kind[2]),
        blocks=len(steps),
        first_step=int(steps.min()),
        last_step=int(steps.max()),
    )


def _is_perhaps_memory(error: ErrorAtEnd) -> bool:
    return error.is_out_of_memory or error.says(*_PERHAPS_OUT_OF_MEMORY)


def _outside_failure(error: ErrorAtEnd, walk: FailureWalk) -> OutsideFailure | None:
    # The program ended by this error, so the end of the trace is the instant nearest to it.
    found = [
        (gaps.device_free, number, gaps)
        for number, gaps in walk.gaps_at_end().items()
        if gaps.device_free is not None
    ]
    if not found or not _is_perhaps_memory(error):
        return None
    free, number, gaps = min(found, key=lambda entry: entry[:2])
    if not error.is_out_of_memory and free > _HARDLY_ANY * (gaps.capacity or 0):
        return None
    return OutsideFailure(
        error=str(error),
        device=number,
        device_free_bytes=max(free, 0),
        cached_bytes=gaps.cached or 0,
        place=walk.last_place,
    )
