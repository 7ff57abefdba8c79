"""Opening a trace for a command: with a progress bar when reading it takes a while."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpumemtrace.analysis.endings import describe_damage
from gpumemtrace.analysis.owners import OWNERS, why_unknown
from gpumemtrace.category_rules import load_category_rules
from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.records import FileSource, ForwardingSource, Records
from gpumemtrace.trace import Trace

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = [
    "ProgressSource",
    "open_sides",
    "open_trace",
    "require_owners",
    "show_progress",
    "slice_trace",
    "tell_damage",
    "warn_of_silent_devices",
]

_SHOW_AFTER_S = 1.0


def open_trace(path: Path, *, quiet: bool, categories: Path | None = None) -> Trace:
    """Open ``path``; each pass over it that takes over a second shows its progress on stderr.

    ``categories``: a file with the user's own rules, see `gpumemtrace.category_rules`.
    """
    file = FileSource(path)
    source = file if quiet or not sys.stderr.isatty() else ProgressSource(file)
    rules = () if categories is None else load_category_rules(categories)
    return Trace(source, category_rules=rules)


def require_owners(trace: Trace, by: str | None) -> None:
    """Raise `GpuMemTraceError` if ``--by`` asks for owners that the trace does not tell."""
    if by in OWNERS and (why := why_unknown(trace, by)):
        raise GpuMemTraceError(f"{trace.path} {why}")


def slice_trace(
    trace: Trace, steps: tuple[int, int] | None, time_ns: tuple[int, int] | None = None
) -> Trace:
    """Return the part of ``trace`` that ``--steps`` or ``--time`` asks for; all without them."""
    if steps is None and time_ns is None:
        return trace
    try:
        return trace.slice(steps=steps, time_ns=time_ns)
    except ValueError as error:
        raise GpuMemTraceError(f"{trace.path}: {error}") from None


def open_sides(
    a: Path,
    b: Path | None,
    *,
    steps_a: tuple[int, int] | None,
    steps_b: tuple[int, int] | None,
    command: str,
    quiet: bool,
) -> tuple[Trace, Trace]:
    """Return two runs, or two parts of one, to compare; ``command``: how to ask for them."""
    if b is None and (steps_a is None or steps_b is None):
        raise GpuMemTraceError(
            "compare: give two traces, or one with --steps-a and --steps-b: "
            f"{command} {a} --steps-a 0:10 --steps-b 10:20"
        )
    first = open_trace(a, quiet=quiet)
    second = first if b is None else open_trace(b, quiet=quiet)
    return slice_trace(first, steps_a), slice_trace(second, steps_b)


def warn_of_silent_devices(trace: Trace, wanted: list[int] | None, *others: Trace) -> None:
    """Say which devices have no events, in none of the traces, and where to look instead."""
    active = sorted({device for one in (trace, *others) for device in one.active_devices})
    names = ", ".join(f"cuda:{device}" for device in active) or "no device"
    verb = "have" if len(active) > 1 else "has"
    if wanted is None and not active:
        print(f"{trace.path}: no events: nothing was allocated on any GPU", file=sys.stderr)
    for device in wanted or ():
        if device not in active:
            print(f"cuda:{device} has no events in this trace; {names} {verb}", file=sys.stderr)


def tell_damage(*traces: Trace) -> None:
    """Say on stderr what is missing in ``traces``, so that no figure seems surer than it is."""
    for trace in {trace.path: trace for trace in traces}.values():
        if damage := describe_damage(trace):
            print(
                f"{trace.path}: {damage}. Figures lack what is missing; see gpumemtrace check",
                file=sys.stderr,
            )


class ProgressSource(ForwardingSource):
    """A file whose passes are watched."""

    def __init__(self, source: FileSource, *, show_after_s: float = _SHOW_AFTER_S) -> None:
        """Watch ``source``."""
        super().__init__(source)
        self._show_after_s = show_after_s

    def pieces(self, first: int = 0) -> Generator[Sequence[Records], None, None]:
        """Yield the records from piece ``first`` on, and show how far they are."""
        done = 0
        what = f"Reading {self.path}"
        with show_progress(what, is_shown=True, show_after_s=self._show_after_s) as on_progress:
            for piece in self._source.pieces(first):
                yield piece
                done += sum(len(records["kind"]) for records in piece)
                on_progress(done, self.record_count)


@contextlib.contextmanager
def show_progress(
    what: str, *, is_shown: bool, show_after_s: float = _SHOW_AFTER_S
) -> Iterator[Callable[[int, int], None]]:
    """Give a function that takes (done, total), and shows them once it takes a while."""
    begun = time.monotonic()
    shown: tuple[Progress, TaskID] | None = None

    def on_progress(done: int, total: int) -> None:
        nonlocal shown
        if shown is None and time.monotonic() - begun > show_after_s:
            shown = _start_progress(what, total)
        if shown is not None:
            shown[0].update(shown[1], completed=done)

    try:
        yield on_progress if is_shown else _show_nothing
    finally:
        if shown is not None:
            shown[0].stop()


def _show_nothing(done: int, total: int) -> None:
    """Stand in where no progress is wanted."""


def _start_progress(what: str, total: int) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    progress.start()
    return progress, progress.add_task(what, total=total)
