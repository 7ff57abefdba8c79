"""Marks in the recording, set by hand: phases, steps, texts, names of tensors.

All of them are events in the same order as the allocations, so what happened in which phase is
worked out later, from the file. Without a recording they do nothing, and cost next to nothing
(a ``with phase(...)`` about 0.1 us; within a recording each mark about as much).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from gpumemtrace import _core
from gpumemtrace.capture.decorate import decorate
from gpumemtrace.capture.steps import counter
from gpumemtrace.capture.tags import tag_tensor

__all__ = ["mark", "phase", "step", "tag", "wrap"]

T = TypeVar("T")

phase = _core.Phase
# The type is native, for speed; how it decorates and explains itself is said here.
phase.__name__ = phase.__qualname__ = "phase"
phase.__module__ = "gpumemtrace"
phase.__call__ = decorate  # type: ignore[assignment,method-assign]
phase.__doc__ = """A named phase of the program: ``with phase("load"):`` or ``@phase("load")``.

The name is any string, and names say what people will read: ``rollout``, ``weight sync``. Phases
nest, also within themselves, and a phase is closed when an exception leaves it. One object may be
used many times and by several threads.

As a decorator it fits functions, generators and coroutines (plain and asynchronous ones). A
generator or coroutine is in its phase only while its own body runs, not while it waits for its
consumer.

A phase belongs to the thread that opened it; other threads, such as autograd's, take the phase of
the thread that drives the training steps.

Beside automatic phases (see ``docs/phases.md``): a phase of yours stands around whatever automatic
phase begins within it (``train/forward``). One opened while an automatic phase lasts is named
below it (``forward/attention``).

Outside a recording it does nothing. ``TypeError`` if ``name`` is not a str.
"""


def step(number: int | None = None) -> None:
    """Say that a training step begins: the next one, or step ``number``.

    From the first call on, steps are counted by hand only; before it, each ``optimizer.step()``
    ended one. Call ``step()`` at the end of each iteration, or ``step(i)`` at the beginning of
    iteration ``i``. Steps count from 0 and step 0 begins with the recording; a first ``step(100)``
    only gives the step that is going on its number. A first ``step()`` that comes after automatic
    steps takes over their count and begins no further step.

    Steps only count up: for a ``number`` below the current one, or what is no whole number, a
    ``RuntimeWarning``, and the next step begins. Outside a recording nothing happens.
    """
    if _core.session_active():
        counter.step_by_hand(number)


def mark(text: str) -> None:
    """Put ``text`` at this point of the recording, such as ``"checkpoint saved"``."""
    if _core.session_active():
        _core.push_mark(_core.define_string(str(text)))


def tag(tensor: Any, name: str) -> None:
    """Give the memory of ``tensor`` a name: the allocation that holds it now shows ``name``.

    ``tensor`` is a CUDA tensor, or one made of CUDA tensors (a DTensor, a quantized one). Others
    have nothing to be named, so nothing happens, nor does it outside a recording.
    """
    if _core.session_active():
        tag_tensor(tensor, str(name))


def wrap(obj: T, phases: Mapping[str, str]) -> T:
    """Let methods of ``obj`` run in phases: ``wrap(trainer, {"generate": "rollout"})``.

    ``phases`` maps names of methods to names of phases. The methods of this one object (or class,
    or module) are replaced by decorated ones; ``obj`` is returned. ``AttributeError`` for a method
    that is not there: then none is replaced.
    """
    wrapped = {method: phase(name)(getattr(obj, method)) for method, name in phases.items()}
    for method, function in wrapped.items():
        setattr(obj, method, function)
    return obj
