"""What a budget found: a verdict for each rule, and one for all of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Budget", "Doubt", "Finding", "Unit"]

Unit = Literal["bytes", "bytes per step", "requests"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One rule on one device of one trace.

    ``measured`` and ``limit`` are in ``unit``; ``measured`` None: it can't be told, ``note`` says
    why. ``path``, ``device``: None where the finding is about no one of them. ``step``, ``phase``:
    where ``measured`` was reached, None where that is no instant. ``ended_the_run``: the program
    died of what the rule is about, so that it is over at any limit.
    """

    rule: str
    limit: int
    measured: float | None = None
    unit: Unit = "bytes"
    path: str | None = None
    device: int | None = None
    step: int | None = None
    phase: str | None = None
    note: str | None = None
    ended_the_run: bool = False

    @property
    def verdict(self) -> Literal["ok", "over", "unknown"]:
        """Whether the limit was kept, or exceeded, or nobody can tell."""
        if self.measured is None:
            return "unknown"
        return "over" if self.measured > self.limit or self.ended_the_run else "ok"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values."""
        return asdict(self) | {"verdict": self.verdict, "over": self.verdict == "over"}


@dataclass(frozen=True)
class Doubt:
    """Why the figures of a trace may be too low: it has lost something, or ends too early."""

    path: str | None
    what: str


@dataclass(frozen=True)
class Budget:
    """What every rule found: requests that failed first, then in the order of the rules."""

    findings: tuple[Finding, ...]
    doubts: tuple[Doubt, ...] = ()

    @property
    def verdict(self) -> Literal["within", "over", "unknown"]:
        """``over`` if one rule was broken, else ``unknown`` if one of them can't be told."""
        verdicts = {finding.verdict for finding in self.findings}
        if "over" in verdicts:
            return "over"
        return "unknown" if "unknown" in verdicts else "within"

    @property
    def is_within(self) -> bool:
        """Whether every rule is known to have been kept."""
        return self.verdict == "within"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-like values. Keys are added by later versions, none goes away."""
        return {
            "within": self.is_within,
            "verdict": self.verdict,
            "findings": [finding.to_dict() for finding in self.findings],
            "doubts": [asdict(doubt) for doubt in self.doubts],
        }
