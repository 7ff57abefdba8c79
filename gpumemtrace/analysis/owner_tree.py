"""Trees of memory by who made it: what is in use at the peak, and all that was allocated.

Modules form a tree by their paths, call sites by who called whom. What a module or line made itself
stands below it by what it is for, so that the leaves of a tree are categories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.analysis.allocated_bytes import SiteBytes, find_allocated_bytes
from gpumemtrace.analysis.categories import CATEGORY_NAMES, Categories, find_categories
from gpumemtrace.analysis.owners import NO_MODULE
from gpumemtrace.analysis.peak_live_set import PeakLiveSet, find_peak_live_set
from gpumemtrace.analysis.rest import SUMMARISED
from gpumemtrace.schema import Kind, StackState
from gpumemtrace.sites import NO_STACK, Sites
from gpumemtrace.trace_data import TraceData

__all__ = ["DeviceOwners", "OwnerNode", "OwnerTree", "find_owner_trees", "trees_of"]

_Row = tuple[tuple[str, ...], str | None, int, int]
"""Names on the way, category, bytes, blocks."""

# Of deeper calls the outermost are kept, and the innermost.
_MOST_LEVELS = 40


@dataclass(frozen=True)
class OwnerNode:
    """Memory of a module or line with all that it called, or a category of its own memory.

    ``size_bytes`` and ``blocks`` are the sums of the ``children``, if there are any; ``category``:
    what it is for, of a node without children.
    """

    name: str
    size_bytes: int
    blocks: int
    children: tuple[OwnerNode, ...] = ()
    category: str | None = None

    def merged(self, least_bytes: float) -> OwnerNode:
        """Return it with children of less than that together in one, so that the sums stay."""
        large = tuple(c.merged(least_bytes) for c in self.children if c.size_bytes >= least_bytes)
        small = tuple(c for c in self.children if c.size_bytes < least_bytes)
        if len(small) == 1:
            large, small = (*large, replace(small[0], children=())), ()
        if small:
            size_bytes, blocks = _sums(small)
            large += (OwnerNode(f"{len(small):,} smaller", size_bytes, blocks),)
        return replace(self, children=large)


@dataclass(frozen=True)
class OwnerTree:
    """``by``: ``"module"`` or ``"site"``; ``of``: ``"peak"`` or ``"allocated"``.

    ``root.size_bytes`` is the peak in allocated bytes, to the byte, or the sum of all requests.
    """

    by: str
    of: str
    root: OwnerNode


@dataclass(frozen=True)
class DeviceOwners:
    """The trees of a device, those that the trace tells: of each owner the peak, then the sum."""

    device: int
    peak: PeakLiveSet
    trees: tuple[OwnerTree, ...]


def find_owner_trees(
    trace: TraceData, *, devices: Sequence[int] | None = None
) -> tuple[DeviceOwners, ...]:
    """Build the trees of ``devices``, by default all on which something was allocated."""
    active = trace.active_devices
    wanted = [n for n in (active if devices is None else devices) if n in active]
    if not wanted:
        return ()
    categories = find_categories(trace)
    peaks = [find_peak_live_set(trace, device=n, categories=categories) for n in wanted]
    return trees_of(trace, peaks, categories=categories)


def trees_of(
    trace: TraceData, peaks: Sequence[PeakLiveSet], *, categories: Categories
) -> tuple[DeviceOwners, ...]:
    """Build the trees of devices whose peaks are known; reads the trace if it tells of owners."""
    if not any(peak.owners.known for peak in peaks):
        return tuple(DeviceOwners(peak.device, peak, ()) for peak in peaks)
    allocated = find_allocated_bytes(trace, categories)

    def trees(peak: PeakLiveSet) -> Iterator[OwnerTree]:
        for by in peak.owners.known:
            yield OwnerTree(by, "peak", _of_peak(trace.sites, peak, by))
            found = allocated.get(peak.device)
            rows = [] if found is None else _rows_of_allocated(trace.sites, found, by)
            rows += _left_out(trace, peak.device)
            yield OwnerTree(by, "allocated", _grow(rows))

    return tuple(DeviceOwners(peak.device, peak, tuple(trees(peak))) for peak in peaks)


def _of_peak(sites: Sites, peak: PeakLiveSet, by: str) -> OwnerNode:
    blocks, owners = peak.blocks, peak.owners
    of_requests = peak.line == "requested"
    size = blocks.requested_bytes if of_requests else blocks.allocated_bytes
    owner = owners.module if by == "module" else sites.clipped(owners.site)
    rows = _rows(owner, blocks.category_id, size, np.ones(len(size), np.int64), _path(sites, by))
    rows += [((name,), None, size, 0) for name, size in peak.named_rest_bytes.items()]
    return _grow(rows)


def _rows_of_allocated(sites: Sites, found: SiteBytes, by: str) -> list[_Row]:
    site = sites.clipped(found.site)
    owner = sites.module[site] if by == "module" else site
    return _rows(owner, found.category_id, found.size_bytes, found.allocs, _path(sites, by))


def _left_out(trace: TraceData, device: int) -> list[_Row]:
    """What was allocated and freed within steps that are summarised: nobody knows by whom."""
    aged = trace.records(Kind.AGED)
    mine = aged["device"] == device
    allocs, size_bytes = int(aged["address"][mine].sum()), int(aged["size_bytes"][mine].sum())
    return [((SUMMARISED,), None, size_bytes, allocs)] if allocs else []


def _rows(
    owner: npt.NDArray[Any],
    category_id: npt.NDArray[np.uint8],
    size_bytes: npt.NDArray[np.int64],
    blocks: npt.NDArray[np.int64],
    path_of: Callable[[int], tuple[str, ...]],
) -> list[_Row]:
    key = (owner.astype(np.int64) << 8) | category_id
    distinct, place = np.unique(key, return_inverse=True)
    sums = np.zeros((2, len(distinct)), np.int64)
    np.add.at(sums[0], place, size_bytes)
    np.add.at(sums[1], place, blocks)
    return [
        (path_of(number >> 8), CATEGORY_NAMES[number & 255], size, count)
        for number, size, count in zip(distinct.tolist(), *sums.tolist(), strict=True)
    ]


def _path(sites: Sites, by: str) -> Callable[[int], tuple[str, ...]]:
    """Return what gives the names on the way to a module or site by its number."""
    parts = sites.module_parts

    def of_module(module: int) -> tuple[str, ...]:
        return parts[module] if module >= 0 else (NO_MODULE,)

    def of_site(site: int) -> tuple[str, ...]:
        frames = [sites.told(frame) for frame in reversed(sites.own_frames(site))]
        if not frames:
            return (NO_STACK.get(StackState(int(sites.state[site])), "not known"),)
        return (*frames[: _MOST_LEVELS - 1], *frames[_MOST_LEVELS - 1 :][-1:])

    return of_module if by == "module" else of_site


@dataclass
class _Growing:
    children: dict[str, _Growing] = field(default_factory=dict)
    own: list[OwnerNode] = field(default_factory=list)


def _grow(rows: Iterable[_Row]) -> OwnerNode:
    top = _Growing()
    for path, category, size_bytes, blocks in rows:
        at = top
        for name in path[: None if category else -1]:
            at = at.children.setdefault(name, _Growing())
        at.own.append(OwnerNode(category or path[-1], size_bytes, blocks, category=category))
    return _finished("all", top)


def _finished(name: str, node: _Growing) -> OwnerNode:
    own: dict[str, OwnerNode] = {}
    for leaf in node.own:
        known = own.get(leaf.name)
        if known is not None:
            sums = _sums((known, leaf))
            leaf = replace(leaf, size_bytes=sums[0], blocks=sums[1])
        own[leaf.name] = leaf
    children = [*(_finished(n, child) for n, child in node.children.items()), *own.values()]
    children.sort(key=lambda child: -child.size_bytes)
    return OwnerNode(name, *_sums(children), tuple(children))


def _sums(nodes: Sequence[OwnerNode]) -> tuple[int, int]:
    return sum(node.size_bytes for node in nodes), sum(node.blocks for node in nodes)
