"""A session for marks alone: no torch, no allocator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gpumemtrace
from gpumemtrace import _core
from gpumemtrace.capture.steps import counter
from gpumemtrace.trace import Trace

__all__ = ["entered", "recording_marks"]


@contextmanager
def recording_marks(
    path: Path, mode: _core.PhaseMode = _core.PhaseMode.MANUAL
) -> Iterator[Callable[[], Trace]]:
    """Record marks into ``path``; call what it yields, after the end, to open the trace."""
    _core.session_start(str(path), metadata_json="{}")
    counter.begin_session(lambda number: 1)
    _core.begin_phases(mode)
    try:
        yield lambda: gpumemtrace.open(path)
    finally:
        _core.session_stop("{}")


def entered(trace: Trace) -> list[str]:
    """Return the paths of the phases that were entered, in order."""
    return ["/".join(span.path) for span in trace.phases if span.entered]
