"""How well categories meet what a program said of its memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import gpumemtrace
from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.analysis.lifetimes import Lifetimes
from gpumemtrace.records import MemorySource, RecordSource, empty_records
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace

CLASSES = ("parameter", "gradient", "optimizer_state")


@dataclass(frozen=True)
class Score:
    """Bytes of a class by the truth; of them, those named so; and others that are named so too."""

    true_bytes: int
    right_bytes: int
    claimed_bytes: int


def score(
    lifetimes: Lifetimes, event: int, truth: Mapping[str, Sequence[Sequence[int]]]
) -> dict[str, Score]:
    """Compare the blocks alive before ``event`` with ``truth``: category -> (address, bytes)."""
    death = np.where(lifetimes.death_index < 0, np.iinfo(np.int64).max, lifetimes.death_index)
    alive = np.flatnonzero((lifetimes.birth_index < event) & (death >= event))
    order = np.argsort(lifetimes.address[alive])
    alive = alive[order]
    true_category = np.zeros(len(alive), np.uint8)
    missing: dict[str, int] = {}
    for category, places in truth.items():
        for address, size_bytes in places:
            i = int(np.searchsorted(lifetimes.address[alive], address, side="right")) - 1
            if i < 0 or address >= int(
                lifetimes.address[alive[i]] + lifetimes.size_bytes[alive[i]]
            ):
                missing[category] = missing.get(category, 0) + size_bytes
                continue
            true_category[i] = CATEGORY_NAMES.index(category)
    size, named = lifetimes.size_bytes[alive], lifetimes.category_id[alive]
    result = {}
    for category in truth:
        id = CATEGORY_NAMES.index(category)
        is_true, is_named = true_category == id, named == id
        result[category] = Score(
            int(size[is_true].sum()) + missing.get(category, 0),
            int(size[is_true & is_named].sum()),
            int(size[is_named & ~is_true].sum()),
        )
    return result


def without_tags(source: RecordSource) -> Trace:
    """Return the trace that a recording without tags would have been."""
    parts = list(source.batches())
    records = {name: np.concatenate([part[name] for part in parts]) for name in empty_records()}
    kept = records["kind"] != Kind.TAG
    return Trace(MemorySource({n: c[kept] for n, c in records.items()}, source.names))


def scores_of(folder: Path, name: str, *, tags: bool) -> dict[str, Score]:
    """Score one scenario of `programs/categories.py` at its mark "truth"."""
    truth = json.loads((folder / "truth.json").read_text())[name]
    trace = gpumemtrace.open(folder / f"{name}.gmt")
    if not tags:
        trace = without_tags(trace._source)
    (event,) = trace.records(Kind.MARK)["event"].tolist()
    return score(trace.lifetimes(), event, truth)
