"""Call sites: which line of Python allocates, all the time, for a few steps, or when told.

The stacks are taken natively (``csrc/torch/python_stacks.h``); here is said when.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

from gpumemtrace import _core
from gpumemtrace.capture.options import RecordingOptions
from gpumemtrace.capture.say import say

__all__ = ["begin_stacks", "end_stacks", "stacks", "stacks_step"]

_current: _Taking | None = None


def stacks(on: bool = True) -> None:
    """Take the call site of each allocation from here on, or no more: in the middle of a recording.

    What was recorded before stays as it is. From the first call on, the steps of
    ``install(stacks_steps=…)`` are not looked at any more; ``stacks_min_bytes`` still holds.
    Outside a recording nothing happens. ``TypeError`` if ``on`` is not True or False.
    """
    if not isinstance(on, bool):
        raise TypeError(f"stacks(True) or stacks(False), not {on!r}")
    if not _core.session_active():
        return
    if _current is None:
        _start(RecordingOptions())
    if _current is not None:
        _current.by_hand(on)


def begin_stacks(options: RecordingOptions) -> None:
    """A session begins, in step 0."""
    if options.stacks is not None:
        _start(options)
        stacks_step(0)


def stacks_step(number: int) -> None:
    """A step begins."""
    if _current is not None:
        _current.step(number)


def end_stacks() -> None:
    """The session ends."""
    global _current
    if _current is not None:
        _current = None
        _hook().stop_stacks()


def _start(options: RecordingOptions) -> None:
    global _current
    if _hook().start_stacks(options.confidential):
        _current = _Taking(options)
    else:
        python = f"{platform.python_implementation()} {platform.python_version()}"
        say(f"call sites are not recorded: the frames of {python} can't be read")


def _hook() -> Any:
    return sys.modules["gpumemtrace._torch_hook"]


class _Taking:
    """Whether stacks are taken now."""

    def __init__(self, options: RecordingOptions) -> None:
        self._steps = options.stacks_steps
        self._min_bytes = options.stacks_min_bytes
        self._by_hand = options.stacks is None
        self._on = False

    def step(self, number: int) -> None:
        if not self._by_hand:
            self._set(self._steps is None or number in self._steps)

    def by_hand(self, on: bool) -> None:
        self._by_hand = True
        self._set(on)

    def _set(self, on: bool) -> None:
        if on != self._on:
            self._on = on
            _hook().take_stacks(on, self._min_bytes)
