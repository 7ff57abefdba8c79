"""Results of several devices in one figure: which to show, and a panel for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from matplotlib.figure import Figure

from gpumemtrace.analysis.facts import TraceFacts, trace_facts
from gpumemtrace.plot.frame import device_title
from gpumemtrace.trace_data import TraceData

__all__ = ["NO_EVENTS", "ByDevice", "figure_for", "of_devices"]

NO_EVENTS = "no events: this process allocated no CUDA memory"


class _OfDevice(Protocol):
    @property
    def device(self) -> int: ...


ResultT = TypeVar("ResultT", bound=_OfDevice)


@dataclass(frozen=True)
class ByDevice(Generic[ResultT]):
    """The same result of each device that is shown; None for one without events."""

    facts: TraceFacts
    results: dict[int, ResultT | None]

    @property
    def found(self) -> list[ResultT]:
        """The results of the devices that have one."""
        return [result for result in self.results.values() if result is not None]

    def title_of(self, number: int) -> str:
        """Return what stands above the panel of a device."""
        return device_title(number, self.facts.devices.get(number))


def of_devices(
    trace: TraceData, results: Sequence[ResultT], devices: Sequence[int] | None
) -> ByDevice[ResultT]:
    """Choose: ``devices``, by default all that have events."""
    found = {result.device: result for result in results}
    shown = trace.active_devices if devices is None else devices
    return ByDevice(trace_facts(trace), {number: found.get(number) for number in shown})


def figure_for(
    shown: ByDevice[ResultT],
    size_inches: tuple[float, float] | None,
    *,
    panel_inches: float = 2.9,
) -> tuple[Figure, int]:
    """Return an empty figure, and how many rows of panels it has room for (at least one)."""
    count = max(len(shown.results), 1)
    size = size_inches or (12, 1.6 + panel_inches * count)
    return Figure(figsize=size, layout="constrained"), count
