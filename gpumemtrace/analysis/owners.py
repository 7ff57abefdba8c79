"""Who made the blocks of a live set: the module and the call site of each.

What a program has tagged (parameters, buffers, gradients, optimizer state) belongs to the module
that the tag tells, else to the one in whose name its own name begins; all else to the module that
ran when it was allocated or, in a backward, that ran the forward operator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpumemtrace.batches import END
from gpumemtrace.records import Batch, Records
from gpumemtrace.schema import Category, Kind, StackState
from gpumemtrace.sites import NO_STACK, Sites
from gpumemtrace.trace_data import TraceData

__all__ = ["NO_MODULE", "OWNERS", "Owners", "find_owners", "keys_of_sites", "why_unknown"]

OWNERS = ("module", "site")
"""Ways to group by who made the blocks."""
NO_MODULE = "no module"

_NOT_RECORDED = {
    "module": "does not tell modules: record with --modules, or install(modules=True)",
    "site": 'does not tell call sites: record with --stacks python, or install(stacks="python")',
}

_NAMED = (Category.PARAMETER, Category.BUFFER, Category.GRADIENT, Category.OPTIMIZER_STATE)


@dataclass(frozen=True)
class Owners:
    """One row per block that was asked for.

    ``site`` uint32, of its alloc, 0 = none. ``module`` int32, index into ``module_names``, -1 =
    none; ``line`` int32, index into ``line_names``: the line outside of PyTorch that allocated, or
    why it is not known.
    """

    site: npt.NDArray[np.uint32]
    module: npt.NDArray[np.int32]
    module_names: tuple[str, ...]
    line: npt.NDArray[np.int32]
    line_names: tuple[str, ...]
    known: tuple[str, ...]
    """What the trace tells: ``"module"``, ``"site"``, both or neither."""

    def keys(self, by: str) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
        """Return for each block the place of its owner among the names, and these.

        ``by``: one of `OWNERS`.
        """
        if by == "module":
            return self.module.astype(np.int64) + 1, (NO_MODULE, *self.module_names)
        return self.line.astype(np.int64), self.line_names


def why_unknown(trace: TraceData, by: str) -> str | None:
    """Return why a trace can't be grouped by ``by``, one of `OWNERS`, and what to do; else None."""
    sites = trace.sites
    is_known = {"module": sites.has_modules, "site": sites.has_stacks}[by]
    return None if is_known else _NOT_RECORDED[by]


def keys_of_sites(sites: Sites, by: str) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return for each site number the place of its owner among the names, and these.

    ``by``: one of `OWNERS`. Unlike `find_owners` it knows nothing of tags.
    """
    if by == "module":
        return sites.module.astype(np.int64) + 1, (NO_MODULE, *sites.module_names)
    line, names = _lines(sites, np.arange(len(sites.module)))
    return line.astype(np.int64), names


def find_owners(
    trace: TraceData, allocs: npt.NDArray[np.int64], allocated_bytes: npt.NDArray[np.int64]
) -> Owners:
    """Find who made the blocks of ``allocs``: numbers among the allocs of the *whole* trace.

    They ascend; ``allocated_bytes`` are the sizes of the blocks. One pass over the trace.
    """
    sites = trace.sites
    finder = _Finder(trace, allocs, allocated_bytes)
    if len(sites) and len(allocs):
        for batch in trace.whole.chunks():
            finder.feed(batch)
    rows = sites.clipped(finder.site)
    named = finder.names(trace)
    module = np.where(named >= 0, named, sites.module[rows]).astype(np.int32)
    line, line_names = _lines(sites, rows)
    return Owners(
        site=finder.site,
        module=module,
        module_names=sites.module_names,
        line=line,
        line_names=line_names,
        known=("module",) * sites.has_modules + ("site",) * sites.has_stacks,
    )


class _Finder:
    """Looks up the blocks as the batches of a whole trace go by.

    They are all in use at one instant: no two of them share an address.
    """

    def __init__(
        self, trace: TraceData, allocs: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> None:
        self._allocs = allocs
        self._sizes = sizes.astype(np.uint64)
        self._seen = 0  # allocs
        self._address = np.zeros(len(allocs), np.uint64)
        self._birth = np.full(len(allocs), END)  # positions among the records
        self._death = np.full(len(allocs), END)
        self._freed: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]] = []
        self._tags: list[tuple[npt.NDArray[np.int64], Records]] = []
        self.site = np.zeros(len(allocs), np.uint32)

    def feed(self, batch: Batch) -> None:
        """Take the next batch."""
        kind, address = batch.raw["kind"], batch.raw["address"]
        born = np.flatnonzero(kind == Kind.ALLOC)
        first, end = np.searchsorted(self._allocs, [self._seen, self._seen + len(born)])
        at = born[self._allocs[first:end] - self._seen]
        self._seen += len(born)
        self.site[first:end] = batch.raw["site"][at]
        self._address[first:end] = address[at]
        self._birth[first:end] = batch.first_record + at
        self._bury(batch, int(end))
        tags = batch.rows_of(Kind.TAG)
        tags = tags[np.isin(batch.raw["stream"][tags], _NAMED)]
        if len(tags):
            columns = {name: batch.raw[name][tags] for name in ("address", "extra", "site")}
            self._tags.append((batch.first_record + tags, columns))

    def _bury(self, batch: Batch, known: int) -> None:
        """Note when the first ``known`` blocks are freed, the first time after their birth."""
        rows = np.flatnonzero(batch.raw["kind"] == Kind.FREE)
        if not known or not len(rows):
            return
        order = np.argsort(self._address[:known])
        block, hit = _find(self._address[order], batch.raw["address"][rows])
        block, position = order[block[hit]], batch.first_record + rows[hit]
        late = position > self._birth[block]
        np.minimum.at(self._death, block[late], position[late])

    def names(self, trace: TraceData) -> npt.NDArray[np.int32]:
        """Return the module that the tag of each block names or begins with; -1 = it has none."""
        named = np.full(len(self._allocs), -1, np.int32)
        sites = trace.sites
        paths = {name: i for i, name in enumerate(sites.module_names)}
        paths = sites.relative_paths | paths
        order = np.argsort(self._address)
        starts = self._address[order]
        for position, tags in self._tags:
            place = np.searchsorted(starts, tags["address"], side="right") - 1
            block = order[np.maximum(place, 0)]
            inside = (place >= 0) & (tags["address"] - self._address[block] < self._sizes[block])
            inside &= (self._birth[block] < position) & (position < self._death[block])
            for i in np.flatnonzero(inside).tolist():
                module: int | None = int(sites.module[sites.clipped(tags["site"][i : i + 1])[0]])
                if module == -1:
                    module = _module_of(trace.text(int(tags["extra"][i])), paths)
                if module is not None:
                    named[block[i]] = module
        return named


def _find(
    values: npt.NDArray[np.uint64], wanted: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Return the place of each of ``wanted`` in ascending ``values``, and whether it is there."""
    place = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return place, values[place] == wanted


def _module_of(name: str, paths: dict[str, int]) -> int | None:
    """Return the innermost module in whose name ``name`` begins."""
    path = name
    while path:
        path = path.rpartition(".")[0]
        if path in paths:
            return paths[path]
    return None


def _lines(
    sites: Sites, rows: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
    names: dict[str, int] = {}
    distinct, inverse = np.unique(rows, return_inverse=True)
    of_site = np.empty(len(distinct), np.int32)
    for i, site in enumerate(distinct.tolist()):
        frame = sites.call_site(site)
        if frame is not None:
            name = sites.told(frame)
        else:
            name = f"({NO_STACK.get(StackState(int(sites.state[site])), 'not known')})"
        of_site[i] = names.setdefault(name, len(names))
    return of_site[inverse], tuple(names)
