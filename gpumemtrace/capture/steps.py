"""Counting training steps: automatically by the optimizer, or by hand.

Steps count from 0, and step 0 begins with the recording. A step event carries the number of the
step that begins.

Automatically a step ends when ``optimizer.step()`` returns. With several optimizers one of them
counts, so that an iteration of a GAN is one step: the first that stepped. When it is gone, or the
others go on stepping without it, the one that steps takes over.
"""

from __future__ import annotations

import operator
import warnings
import weakref
from collections.abc import Callable

from gpumemtrace import _core

__all__ = ["StepCounter", "counter"]

# Another optimizer takes over after so many steps of its own without one of the owner's, or after
# twice as many as the owner has ever let it make.
_PATIENCE = 8


# Leaves room to count on in the 64 bits of an event.
_MOST = 1 << 62
_STEP_SET = 1  # schema.StepFlags.SET: the number is set, no step has ended


class StepCounter:
    """The steps of this process. Used by the threads that train, one at a time."""

    def __init__(self) -> None:
        self.begin_session(lambda number: 1)
        self.end_session()

    @property
    def number(self) -> int:
        """The step that has begun last."""
        return _core.step_number()

    def begin_session(self, on_step: Callable[[int], int], *, enabled: bool = True) -> None:
        """Start again at step 0; ``on_step(number)`` is told of steps that begin.

        It returns how many steps later it has to be told again, 1 or more; it may be told earlier.
        """
        _core.begin_steps()
        self._enabled = enabled
        self._by_hand = False
        self._on_step = on_step
        self._owner: weakref.ref[object] | None = None
        self._others: dict[int, int] = {}  # id of an optimizer -> its steps since the owner's last
        self._usual = 0  # the most steps another made between two of the owner's

    def end_session(self) -> None:
        """Count no more, and forget the session and its optimizer."""
        self._enabled = False
        self._on_step = lambda number: 1
        self._owner = None
        _core.let_steps_pass(None, 0)

    def step_by_hand(self, number: int | None) -> None:
        """See `gpumemtrace.step`."""
        if not self._enabled:
            return
        why = ""
        if number is not None:
            whole, why = _as_whole(number)
            if whole is not None and whole < self.number:
                why = "steps only count up"
            if why:
                warnings.warn(
                    f"gpumemtrace.step({number!r}) during step {self.number}: {why}, so "
                    f"step {self.number + 1} begins",
                    RuntimeWarning,
                    stacklevel=3,
                )
            number = None if why else whole
        is_first = not self._by_hand
        self._by_hand = True
        _core.let_steps_pass(None, 0)
        if not why and (number == self.number or (is_first and number is None and self.number > 0)):
            return
        if number is not None and is_first and self.number == 0:
            # `step(100)` at the beginning: what came before it was no step.
            self._begin(number, _STEP_SET)
        else:
            self._begin(self.number + 1 if number is None else number)

    def optimizer_stepped(self, optimizer: object) -> None:
        """``optimizer.step()`` has returned."""
        if not self._enabled or self._by_hand:
            return
        owner = None if self._owner is None else self._owner()
        if owner is not optimizer and not self._takes_over(optimizer, owner):
            return
        if self._others:
            self._usual = max(self._usual, *self._others.values())
            self._others.clear()
        untold = self._begin(self.number + 1) - 1
        # Natively, until another optimizer steps (what ends that: _takes_over) or the user speaks.
        _core.let_steps_pass(optimizer, untold)

    def _takes_over(self, optimizer: object, owner: object) -> bool:
        if owner is not None:
            _core.let_steps_pass(None, 0)
            steps = self._others.get(id(optimizer), 0) + 1
            self._others[id(optimizer)] = steps
            if steps < max(_PATIENCE, 2 * self._usual):
                return False
            self._usual = 0
            self._others.clear()
        self._owner = weakref.ref(optimizer)
        return True

    def _begin(self, number: int, flags: int = 0) -> int:
        """Return what ``on_step`` did."""
        _core.begin_step(number, flags)
        return self._on_step(number)


def _as_whole(number: object) -> tuple[int | None, str]:
    """Return the number as one that an event can hold, or None and why it can't."""
    try:
        whole = operator.index(number)  # type: ignore[arg-type]
    except Exception:  # also of a tensor whose device is lost
        return None, "a step has a whole number"
    return (None, f"a step's number is at most {_MOST}") if whole > _MOST else (whole, "")


counter = StepCounter()
