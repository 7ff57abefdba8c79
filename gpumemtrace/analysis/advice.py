"""What would lower the peak, and by how much at most: computed from the trace, never a list.

An upper bound is exact in this sense: if the bytes of a category had not been there (or half of
them), the highest instant of the run would have been lower by that much. The next highest instant
counts, so a bound can be smaller than what the category takes at the peak.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpumemtrace.analysis.categories import CATEGORY_NAMES
from gpumemtrace.analysis.peak_composition import PeakComposition
from gpumemtrace.units import format_bytes

__all__ = [
    "Advice",
    "Bottleneck",
    "Grown",
    "PeakFigures",
    "advise",
    "describe_bottleneck",
    "find_bottleneck",
]

# What saves less of the peak is not worth a line.
_LEAST_SHARE = 0.01
# Beyond the named categories: what the allocator keeps, and what others hold on the card.
CACHE, OUTSIDE = "cache", "outside"
_OTHER_PARTS = {CACHE: "what the allocator keeps cached", OUTSIDE: "what is outside of PyTorch"}
# From so many times the allocated peak on it is told as times.
_TIMES = 3
LET_GO = "let go of what each step keeps"
HALVE_BATCH = "halve the batch or the sequence length"


@dataclass(frozen=True)
class Grown:
    """What is in use at the peak since each step keeps some of what it makes.

    ``bytes_per_step``: by how much it grows; ``steps``: from the first that did to the peak's;
    ``owner``: what grows fastest, in words.
    """

    bytes_per_step: float
    steps: int
    first_step: int
    owner: str | None


@dataclass(frozen=True)
class PeakFigures:
    """The figures of one device that advice rests on.

    ``category_bytes``: at the highest instant of the allocated line, whose phase is ``phase``.
    ``active_bytes``, ``reserved_bytes``, ``outside_bytes``: peaks; None = not known.
    ``expandable_segments``: whether the allocator used them. ``world_size``: processes.
    ``moment``: what the instant is called in the evidence. ``grown``: what steps kept until then.
    ``earlier_activation_bytes``: activations that earlier steps made and the program still holds.
    """

    allocated_bytes: int
    phase: str | None
    category_bytes: Mapping[str, int]
    composition: PeakComposition
    active_bytes: int | None
    reserved_bytes: int | None
    outside_bytes: int | None
    expandable_segments: bool
    world_size: int
    moment: str = "at the peak"
    grown: Grown | None = None
    earlier_activation_bytes: int = 0


@dataclass(frozen=True)
class Bottleneck:
    """What takes most of the memory that the run needs.

    ``share``: as a part of the allocated peak, also of what is not in it, the cache and what is
    outside, which can be more than 1.
    """

    name: str
    size_bytes: int
    share: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return asdict(self)


@dataclass(frozen=True)
class Advice:
    """One thing to change. ``saves_bytes``: at most, of the peak of ``line``; ``about``: what it
    makes smaller; ``change``: what to do; ``evidence``: what in the trace says so."""

    about: str
    change: str
    line: str
    saves_bytes: int
    evidence: str

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return asdict(self)


def find_bottleneck(figures: PeakFigures) -> Bottleneck | None:
    """Return what takes most: a category at the peak, the allocator's cache, or what is outside."""
    parts = dict(figures.category_bytes)
    parts[CACHE] = _cache_bytes(figures)
    parts[OUTSIDE] = figures.outside_bytes or 0
    name = max(parts, key=lambda part: parts[part])
    size = parts[name]
    return Bottleneck(name, size, size / max(figures.allocated_bytes, 1)) if size > 0 else None


def describe_bottleneck(found: Bottleneck) -> str:
    """Return what it is and how much: ``activation, 1.275 GiB (41% of the allocated peak)``."""
    name = _OTHER_PARTS.get(found.name, found.name.replace("_", " "))
    share = f"{found.share:.0%}" if found.share < _TIMES else f"{found.share:,.0f} times as much as"
    of = "of the allocated peak" if found.share < _TIMES else "the allocated peak"
    return f"{name}, {format_bytes(found.size_bytes)} ({share} {of})"


def advise(figures: PeakFigures) -> tuple[Advice, ...]:
    """Return what would lower the peak: what never stops growing, then the largest saving."""
    found = [
        *_about_activations(figures),
        *_about_optimizer_state(figures),
        *_about_gradients(figures),
        *_about_parameters(figures),
        *_about_temporaries(figures),
        *_about_cache(figures),
        *_about_growth(figures),
    ]
    worth = [a for a in found if a.saves_bytes >= _LEAST_SHARE * figures.allocated_bytes]
    return tuple(sorted(worth, key=lambda a: (a.about != "growth", -a.saves_bytes)))


def _about_growth(figures: PeakFigures) -> list[Advice]:
    grown = figures.grown
    if grown is None or grown.steps <= 0:
        return []
    rate = format_bytes(round(grown.bytes_per_step))
    whose = "" if grown.owner is None else f", most by {grown.owner}"
    return [
        Advice(
            "growth",
            LET_GO,
            "allocated",
            min(round(grown.bytes_per_step * grown.steps), figures.allocated_bytes),
            f"+{rate} a step since step {grown.first_step}{whose}",
        )
    ]


def _without(figures: PeakFigures, category: str) -> int:
    """By how much the peak would be lower without a category."""
    at = CATEGORY_NAMES.index(category)
    total = sum(figures.category_bytes.values())
    return max(total - int(figures.composition.highest_without[at]), 0)


def _with_half(figures: PeakFigures, category: str) -> int:
    at = CATEGORY_NAMES.index(category)
    total = sum(figures.category_bytes.values())
    return max(total - int(figures.composition.highest_with_half[at]), 0)


def _at_moment(figures: PeakFigures, category: str) -> str:
    size = figures.category_bytes.get(category, 0)
    return f"{format_bytes(size)} {figures.moment}"


def _about_activations(figures: PeakFigures) -> list[Advice]:
    evidence = _at_moment(figures, "activation")
    # What is held beyond its step is held by the program, not for backward.
    earlier = figures.earlier_activation_bytes
    of_step = figures.category_bytes.get("activation", 0) - earlier
    kept = f", {format_bytes(earlier)} of it kept from earlier steps" if earlier else ""
    return [
        Advice(
            "activation",
            "checkpoint activations (torch.utils.checkpoint)",
            "allocated",
            min(_without(figures, "activation"), of_step),
            f"{evidence}{kept}; what is recomputed needs some of it again",
        ),
        Advice(
            "activation",
            HALVE_BATCH,
            "allocated",
            _with_half(figures, "activation"),
            evidence,
        ),
    ]


def _about_optimizer_state(figures: PeakFigures) -> list[Advice]:
    size = figures.category_bytes.get("optimizer_state", 0)
    bound = _without(figures, "optimizer_state")
    evidence = _at_moment(figures, "optimizer_state")
    return [
        Advice(
            "optimizer_state",
            "train fewer parameters (adapters, frozen layers) or use an optimizer without state",
            "allocated",
            bound,
            evidence,
        ),
        Advice(
            "optimizer_state",
            "keep the optimizer's state in 8 bits",
            "allocated",
            min(size * 3 // 4, bound),
            f"{evidence}, in 4 bytes each",
        ),
        *_sharded(figures, "optimizer_state", "shard the optimizer's state (ZeRO, FSDP)"),
    ]


def _about_gradients(figures: PeakFigures) -> list[Advice]:
    return _sharded(figures, "gradient", "shard the gradients (ZeRO-2, FSDP)")


def _about_parameters(figures: PeakFigures) -> list[Advice]:
    return _sharded(figures, "parameter", "shard the parameters (FSDP)")


def _sharded(figures: PeakFigures, category: str, change: str) -> list[Advice]:
    """Of N processes that hold it all, each could hold one part in N; at least two are needed."""
    ranks = max(figures.world_size, 2)
    size = figures.category_bytes.get(category, 0)
    saves = min(size - size // ranks, _without(figures, category))
    evidence = f"{_at_moment(figures, category)}, over {ranks} GPUs a part in {ranks} on each"
    return [Advice(category, change, "allocated", saves, evidence)]


def _about_temporaries(figures: PeakFigures) -> list[Advice]:
    if figures.phase != "optimizer":
        return []
    return [
        Advice(
            "temporary",
            "use a fused optimizer (fused=True), or foreach=False",
            "allocated",
            _without(figures, "temporary"),
            f"temporaries of {_at_moment(figures, 'temporary')}, in the optimizer's step",
        )
    ]


def _about_cache(figures: PeakFigures) -> list[Advice]:
    cache = _cache_bytes(figures)
    if not cache or figures.expandable_segments:
        return []
    return [
        Advice(
            CACHE,
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "reserved",
            cache,
            f"{format_bytes(figures.reserved_bytes or 0)} reserved at most, but never more than "
            f"{format_bytes(figures.active_bytes or 0)} in use",
        )
    ]


def _cache_bytes(figures: PeakFigures) -> int:
    if figures.reserved_bytes is None or figures.active_bytes is None:
        return 0
    return max(figures.reserved_bytes - figures.active_bytes, 0)
