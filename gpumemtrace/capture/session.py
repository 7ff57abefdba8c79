"""Recording sessions: begin, end, and what a process does at its end.

One session a process. It ends with `Session.close`, or with the interpreter (``atexit``; also at
the end of ``multiprocessing`` workers, which skip that). Whatever else ends the process, the file
holds all but the last 100 ms, since the native drain flushes that often: no signal handler is set
(but by a flight recording, which holds everything in memory) and no exit status changed.

A forked child does not record into its parent's file. If it brings up CUDA itself (its parent had
not), it begins a session of its own at that moment.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import sys
import threading
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

from gpumemtrace import _core
from gpumemtrace.capture import outcome, run_record
from gpumemtrace.capture.allocator import ensure_installed
from gpumemtrace.capture.auto_phases import AutoPhases
from gpumemtrace.capture.call_sites import begin_stacks, end_stacks, stacks_step
from gpumemtrace.capture.modules import module_watch_step, stop_module_watch, watch_modules
from gpumemtrace.capture.options import RecordingOptions
from gpumemtrace.capture.output_path import check_writable, choose_path, takes_stream
from gpumemtrace.capture.say import say
from gpumemtrace.capture.session_stats import SessionStats, stats_of
from gpumemtrace.capture.steps import counter
from gpumemtrace.capture.watch import forget_names
from gpumemtrace.errors import InstallError

__all__ = ["Session", "SessionStats", "current_session", "install", "start", "uninstall"]

_MODES = {
    "auto": _core.PhaseMode.AUTO,
    "manual": _core.PhaseMode.MANUAL,
    None: _core.PhaseMode.NONE,
}
_STEPS_BETWEEN_UPDATES = 100

_lock = threading.RLock()
_current: Session | None = None
_before_fork: Session | None = None  # in a forked child: the parent's session
_closes_at_end = False


def install(
    path: str | os.PathLike[str] | None = None,
    *,
    phases: str | None = "auto",
    on_full: str = "drop",
    force: bool = False,
    modules: bool = False,
    stacks: str | None = None,
    stacks_min_bytes: int = 0,
    stacks_steps: range | None = None,
    confidential: bool = False,
    time_resolution_ns: int = 100,
    ring_bytes: int = 8 << 20,
    block_timeout_ms: int = 20,
    flight_recorder: str | float | None = None,
    flight_recorder_bytes: int = 64 << 20,
    device_sample_interval_ms: int = 50,
    max_disk: str | int | None = None,
) -> Session:
    """Begin to record every allocation of CUDA memory in this process, into ``path``.

    Call it after ``import torch`` and before the first use of CUDA memory; ``gpumemtrace run``
    needs no change of the script. Returns the `Session`, which is also a context manager::

        with gpumemtrace.install("train.gmt"):
            train()

    ``path`` is a file, a folder, or a pattern with ``{script} {rank} {local_rank} {host} {pid}``;
    None stands for ``gpumemtrace-<script>.<rank>.<pid>.gmt`` in the working directory, made when
    the first event comes. Nothing is overwritten without ``force``.

    ``phases``: ``"auto"`` sees the phases and steps of the training loop by itself
    (docs/phases.md), ``"manual"`` records those you mark, None neither.
    ``on_full``: what happens when events come faster than they can be written. ``"drop"`` drops the
    newest; they are counted, and the file says where. ``"block"`` lets the program wait for room,
    ``block_timeout_ms`` at most, then drops; it does not wait again before the writer has moved on.
    ``modules``: each event carries the path of the module that made it (docs/who.md).
    ``stacks``: with ``"python"`` each allocation of ``stacks_min_bytes`` or more carries its Python
    call stack, in the steps of ``stacks_steps`` (``range(100, 103)``; None: in all of them);
    `gpumemtrace.stacks` switches it by hand.
    ``confidential``: no paths of folders in the file, nor the name of the host.
    ``time_resolution_ns``: times are stored in multiples of it; finer costs more bytes.
    ``ring_bytes``: memory between the training and the writer, 64 bytes an event.
    ``flight_recorder``: a time like ``"60s"`` or a number of seconds: keep only that long, in
    memory (``flight_recorder_bytes`` at most), and write it when asked to: see docs/recording.md.
    ``device_sample_interval_ms``: how often the memory of the whole GPU is looked at; 0 = never.
    ``max_disk``: such as ``"2GiB"``: older steps are told in summary then (docs/long-runs.md).

    While a session records, another ``install()`` returns that session and changes nothing, so that
    a script that calls it can also be run by ``gpumemtrace run``.

    Raises `InstallError` when tracing can't work here (no torch, no CUDA build of it, no hook),
    `TorchMismatchError`, `LateInstallError` when CUDA memory is in use already, and `InstallError`
    for a path that exists or has no folder. ``ValueError`` or ``TypeError`` for a wrong option.
    A folder that may not be written, or a full disk, is one warning: training goes on, untraced.
    """
    options = RecordingOptions(
        output=None if path is None else os.fspath(path),
        phases=phases,
        on_full=on_full,
        force=force,
        modules=modules,
        stacks=stacks,
        stacks_min_bytes=stacks_min_bytes,
        stacks_steps=stacks_steps,
        confidential=confidential,
        time_resolution_ns=time_resolution_ns,
        ring_bytes=ring_bytes,
        block_timeout_ms=block_timeout_ms,
        flight_recorder=None if flight_recorder is None else str(flight_recorder),
        flight_recorder_bytes=flight_recorder_bytes,
        device_sample_interval_ms=device_sample_interval_ms,
        max_disk=max_disk,
    )
    with _lock:
        if _current is not None:
            if options.output not in (None, _current.options.output, str(_current.path)):
                warnings.warn(
                    f"gpumemtrace is recording already, to {_current.path}; {path} is not written",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return _current
        return start(options, lazy=path is None)


def uninstall() -> None:
    """End the session that records, if there is one.

    The tracing allocator stays in its place, where it only counts what it does not record: CUDA
    memory in use must be given back to the allocator it came from.
    """
    with _lock:
        if _current is not None:
            _current.close()


def current_session() -> Session | None:
    """Return the session that records in this process, or None."""
    return _current


def start(options: RecordingOptions, *, lazy: bool, launched: bool = False) -> Session:
    """Begin a session with checked options; there is none.

    ``lazy``: the file is made when the first allocator event comes, and never if none does.
    ``launched``: nobody typed it in the script. A name that is taken gets a number instead of an
    error, and at the end one line says what was written, unless ``options.quiet``.
    """
    global _current
    ensure_installed()
    with _lock:
        path = choose_path(options, may_raise=not launched)
        session = Session(options, path, lazy=lazy, announce=launched and not options.quiet)
        if not session.closed:
            _current = session
    _close_at_end_of_process()
    _tell_when_cuda_is_up()
    return session


class Session:
    """A recording, from `install` to `close`. As a context manager it closes at the end."""

    def __init__(
        self, options: RecordingOptions, path: Path, *, lazy: bool, announce: bool = False
    ) -> None:
        self._options = options
        self._path = path
        self._announce = announce
        self._pid = os.getpid()
        self._final: SessionStats | None = None
        self._auto: AutoPhases | None = None
        self._next_update = 0  # number of steps begun
        record = run_record.at_start(phases=options.phases, confidential=options.confidential)
        record["device_sample_interval_ms"] = options.device_sample_interval_ms
        self._known: dict[str, Any] = {key: record[key] for key in run_record.late()}
        try:
            if options.flight_recorder is not None:
                check_writable(path.parent)  # it would show at the end, when it is too late
            _core.session_start(
                str(path),
                metadata_json=json.dumps(record),
                overwrite=options.force or takes_stream(path),
                lazy=lazy,
                ring_bytes=options.ring_bytes,
                block_timeout_ms=options.block_timeout_ms if options.on_full == "block" else 0,
                time_resolution_ns=options.time_resolution_ns,
                device_sample_interval_ms=options.device_sample_interval_ms,
                flight_window_ms=options.flight_window_ms,
                flight_bytes=options.flight_recorder_bytes,
                max_disk_bytes=options.max_disk_bytes,
                announce=announce,
            )
        except OSError as error:
            self._not_recording(error)
            return
        counter.begin_session(self._step_began, enabled=options.phases is not None)
        _core.begin_phases(_MODES[options.phases])
        if options.phases == "auto":
            self._look()
        if options.modules:
            watch_modules()
        begin_stacks(options)

    @property
    def path(self) -> Path:
        """Absolute path of the file. There is none yet while ``stats.file_created`` is False."""
        return self._path

    @property
    def options(self) -> RecordingOptions:
        """What the session was told."""
        return self._options

    @property
    def closed(self) -> bool:
        """Whether the session has ended."""
        return self._final is not None

    @property
    def stats(self) -> SessionStats:
        """What has been recorded: now, or by the end of a closed session."""
        if self._final is not None:
            return self._final
        return stats_of(_core.session_stats())

    def close(self, *, reason: str = "closed", error: dict[str, str] | None = None) -> None:
        """End the recording: everything is in the file afterwards. Closing again does nothing.

        ``reason`` and ``error`` (see `run_record.uncaught_error`) go into the file.

        In a forked child this only forgets the session, which is its parent's.
        """
        global _current
        with _lock:
            if self._final is not None:
                return
            is_ours = os.getpid() == self._pid
            if is_ours:
                self._update_record()
            self.stop_looking()
            if is_ours:
                confidential = self._options.confidential
                footer = run_record.at_end(reason, counter.number, error, confidential=confidential)
                counter.end_session()
                self._final = stats_of(_core.session_stop(json.dumps(footer)))
                outcome.tell(self._final, self._path, self._options, aloud=self._announce)
            else:
                self._final = stats_of(_core.session_stats())
            if _current is self:
                _current = None

    def _look(self) -> None:
        """Put the automatic phases' hooks into torch."""
        try:
            self._auto = AutoPhases(sys.modules["torch"])
        except Exception as error:  # a torch that has changed: the memory is recorded all the same
            say(f"no automatic phases: {type(error).__name__}: {error}")

    def stop_looking(self) -> None:
        """Take our hooks out of torch: those of automatic phases and of modules."""
        stop_module_watch()
        end_stacks()
        if self._auto is not None:
            self._auto.stop()
            self._auto = None
        forget_names()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(
            reason="closed" if kind is None else f"closed by {kind.__name__}",
            error=None if error is None else run_record.describe_error(error),
        )

    def __repr__(self) -> str:
        return f"<Session {'closed' if self.closed else 'recording'} {self._path}>"

    def cuda_is_up(self) -> None:
        """CUDA can be asked now what there is."""
        _core.add_metadata(json.dumps(run_record.devices(sys.modules["torch"])))

    def _not_recording(self, error: OSError) -> None:
        """The user's mistake is an error; the machine's state is a warning: training goes on."""
        what = f"{self._path}: {error.strerror}"
        if isinstance(error, FileNotFoundError | FileExistsError | NotADirectoryError):
            raise InstallError(what) from error
        self._final = dataclasses.replace(stats_of(_core.session_stats()), error=what)
        warnings.warn(f"gpumemtrace records nothing: {what}", RuntimeWarning, stacklevel=5)

    def _step_began(self, number: int) -> int:
        module_watch_step()
        stacks_step(number)
        begun = _core.steps_begun()
        # After the first one too: a process that is killed should have said what it trained.
        if begun >= self._next_update:
            self._next_update = begun + _STEPS_BETWEEN_UPDATES
            self._update_record()
        return 1 if self._options.stacks_steps is not None else self._next_update - begun

    def _update_record(self) -> None:
        """Add what has become known, or has changed, since the last time."""
        try:
            late = run_record.late()
            if self._auto is not None:
                late["training"] = self._auto.training.to_dict()
            if news := {key: value for key, value in late.items() if value != self._known.get(key)}:
                self._known = late
                _core.add_metadata(json.dumps(news))
        except Exception as error:  # called in the middle of the training
            say(f"the run record stays as it was: {type(error).__name__}: {error}")


def _tell_when_cuda_is_up() -> None:
    """Have `_cuda_is_up` called when torch has initialised CUDA; at once if it has."""
    global _asked_torch
    cuda = sys.modules["torch"].cuda
    if cuda.is_initialized():
        _cuda_is_up()
    elif not _asked_torch:
        cuda._lazy_call(_cuda_is_up)
        _asked_torch = True


_asked_torch = False


def _cuda_is_up() -> None:
    try:
        if _current is not None:
            _current.cuda_is_up()
        elif _before_fork is not None:
            _record_in_child(_before_fork)
    except Exception as error:  # within torch's initialisation: it must not fail because of us
        say(f"what devices there are is not recorded: {type(error).__name__}: {error}")


def _record_in_child(parent: Session) -> None:
    global _before_fork
    _before_fork = None
    start(parent.options, lazy=True, launched=True).cuda_is_up()


def _after_fork_in_child() -> None:
    global _lock, _current, _before_fork
    _lock = threading.RLock()  # a thread that is not in the child may have held it
    if _current is not None:
        _current.stop_looking()
        _before_fork, _current = _current, None


def _close_at_end_of_process() -> None:
    global _closes_at_end
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        # A multiprocessing worker ends by os._exit after these; a lower priority runs later.
        finalizers = sys.modules["multiprocessing.util"]
        finalizers.Finalize(None, _close_current, exitpriority=-1000)
    if not _closes_at_end:
        atexit.register(_close_current)
        _closes_at_end = True


def _close_current() -> None:
    if _current is not None:
        _current.close(reason="exit", error=run_record.uncaught_error())


os.register_at_fork(after_in_child=_after_fork_in_child)
