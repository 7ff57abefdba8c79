"""What `gpumemtrace.analysis.oom` finds: failed requests with their causes, and what would help."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gpumemtrace.analysis.gap_results import Gaps, Place
from gpumemtrace.analysis.serving import RequestOutcome

__all__ = ["CAUSES", "FailedRequest", "Help", "LargeGroup", "Oom", "OutsideFailure"]

CAUSES = {
    "limit": "the device had enough free, so a limit on this process's memory forbade it",
    "fragmentation": "what was free in this stream's segments was not in one piece",
    "other_stream": "what was free was in segments of other streams, which this one can't use",
    "private_pool": "what was free was in private pools (of CUDA graphs, or a MemPool)",
    "not_flushed": "the cache was not given back, as it can't be while a CUDA graph is captured",
    "outside": "memory outside PyTorch, or of other processes, took what was missing",
    "capacity": "what was in use and the request together are more than the card has",
    "unknown": "the trace does not tell what the device had free",
}


@dataclass(frozen=True)
class LargeGroup:
    """Blocks in use that are alike: category, innermost phase of birth, bytes asked for.

    ``first_step``, ``last_step``: between which they were born.
    """

    category: str
    phase: str | None
    size_bytes: int
    blocks: int
    first_step: int
    last_step: int

    @property
    def total_bytes(self) -> int:
        """Requested bytes of all of them."""
        return self.size_bytes * self.blocks

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return asdict(self) | {"total_bytes": self.total_bytes}


@dataclass(frozen=True)
class Help:
    """Something that would have helped: by ``size_bytes`` at most, as this trace has them.

    ``about``: a category or a key of `CAUSES`; ``is_enough``: whether so many bytes are what was
    missing, or more.
    """

    about: str
    change: str
    size_bytes: int
    evidence: str
    is_enough: bool

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return asdict(self)


@dataclass(frozen=True)
class FailedRequest:
    """A request that could not be served.

    ``cause``: a key of `CAUSES`: what would have been enough had it been usable, the largest of
    these; else the largest of what would have been enough together. ``gaps``: the lines just before
    the request, None when it was the first record of the device. ``found``: what the request found
    then, before the allocator flushed its cache. ``device_free_bytes``: what the device had free
    after that; ``needed_bytes``: what the driver would have had to give; ``missing_bytes``: by how
    much that was more. ``free_bytes``: cause (see `gpumemtrace.analysis.segments`) -> bytes cached
    all the same. ``outside_bytes``: in use outside PyTorch beyond what was at first, and by other
    processes. None: the trace does not tell. ``groups``: the ten largest in use.
    """

    device: int
    request_bytes: int
    stream: int
    place: Place
    cause: str
    gaps: Gaps | None
    found: RequestOutcome | None
    device_free_bytes: int | None
    needed_bytes: int
    missing_bytes: int | None
    free_bytes: dict[str, int] | None
    outside_bytes: int | None
    groups: tuple[LargeGroup, ...]
    helps: tuple[Help, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "device": self.device,
            "request_bytes": self.request_bytes,
            "stream": self.stream,
            **self.place.to_dict(),
            "cause": self.cause,
            "cause_text": CAUSES[self.cause],
            "gaps": None if self.gaps is None else self.gaps.to_dict(),
            "found": None if self.found is None else asdict(self.found),
            "device_free_bytes": self.device_free_bytes,
            "needed_bytes": self.needed_bytes,
            "missing_bytes": self.missing_bytes,
            "free_bytes": None if self.free_bytes is None else dict(self.free_bytes),
            "outside_bytes": self.outside_bytes,
            "groups": [group.to_dict() for group in self.groups],
            "helps": [found.to_dict() for found in self.helps],
        }


@dataclass(frozen=True)
class OutsideFailure:
    """The program ended because memory could not be had that it had not asked PyTorch for.

    All of it at the end of the trace, by the last samples. ``device``: the one with the least
    memory free, ``device_free_bytes``; ``cached_bytes``: what PyTorch's cache held. ``place``: of
    the last record.
    """

    error: str
    device: int
    device_free_bytes: int
    cached_bytes: int
    place: Place

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return {
            "error": self.error,
            "device": self.device,
            "device_free_bytes": self.device_free_bytes,
            "cached_bytes": self.cached_bytes,
            **self.place.to_dict(),
        }


@dataclass(frozen=True)
class Oom:
    """The requests of a run that failed, ``failed`` in all.

    ``requests``: of more than 20, the first 19 and the last. ``died_of_it``: whether the program
    ended with PyTorch's error for them.
    """

    failed: int
    died_of_it: bool
    requests: tuple[FailedRequest, ...]
    outside: OutsideFailure | None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        return {
            "failed": self.failed,
            "died_of_it": self.died_of_it,
            "requests": [request.to_dict() for request in self.requests],
            "outside": None if self.outside is None else self.outside.to_dict(),
        }
