"""Entering code that torch.compile made.

torch calls "enter hooks" whenever compiled code is entered: ours tells that a forward or an
optimizer step begins where no eager call would tell. Modules that are called within, also while it
is being compiled, are not looked at.

`OptimizedModule` (what ``torch.compile(model)`` returns) is called eagerly, so `ForwardWatch` sees
it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from gpumemtrace import _core
from gpumemtrace.capture.forward_watch import ForwardWatch
from gpumemtrace.capture.work import EVAL, FORWARD, OPTIMIZER

__all__ = ["patch"]


def patch(
    torch: Any, watch: ForwardWatch, optimizer_stepped: Callable[[Any], None]
) -> Callable[[], None]:
    """Look at compiled code; returns what undoes it. ``torch._dynamo.eval_frame`` is imported."""
    # Not torch._dynamo.eval_frame: torch._dynamo is still being imported.
    context = sys.modules["torch._dynamo.eval_frame"].OptimizeContext
    original = context.__call__

    @functools.wraps(original)
    def call(self: Any, function: Any) -> Any:
        entry = _Entry(torch, watch, function, optimizer_stepped)
        # A context that compiles several things keeps the hook of the first: it can't tell them
        # apart, and every one of them is entered in the same way.
        if not any(isinstance(hook, _Entry) for hook in self.enter_exit_hooks):
            self.enter_exit_hooks.append(entry)
        return original(self, function)

    own = "__call__" in vars(context)
    context.__call__ = call

    def undo() -> None:
        if context.__call__ is call:
            if own:
                context.__call__ = original
            else:
                del context.__call__

    return undo


class _Entry:
    """The enter hook of one compiled thing: called at entry, returns what to call at exit."""

    def __init__(
        self,
        torch: Any,
        watch: ForwardWatch,
        function: Any,
        optimizer_stepped: Callable[[Any], None],
    ) -> None:
        self._torch = torch
        self._watch = watch
        self._function = function
        self._optimizer_stepped = optimizer_stepped
        self._known: tuple[Any, Any] | None = None

    def __call__(self) -> Callable[[], None]:
        entered = self._watch.disarm()
        if not entered:
            return _nothing
        module, optimizer = self._what()
        begun = False
        if module is not None:
            learns = module.training and self._torch.is_grad_enabled()
            begun = _core.begin_work(FORWARD if learns else EVAL)
        elif optimizer is not None:
            begun = _core.begin_work(OPTIMIZER)

        def leave() -> None:
            if optimizer is not None:
                self._optimizer_stepped(optimizer)
            if begun:
                _core.end_work(OPTIMIZER if module is None else FORWARD)
            self._watch.release(entered)

        return leave

    def _what(self) -> tuple[Any, Any]:
        """Return the module and the optimizer that the compiled function works with, or None."""
        if self._known is None:
            module = optimizer = None
            # Looking at somebody's objects may run their code: the call must not fail for that.
            with contextlib.suppress(Exception):
                for value in _referred(self._function):
                    if module is None and isinstance(value, self._torch.nn.Module):
                        module = value
                    if optimizer is None and isinstance(value, self._torch.optim.Optimizer):
                        optimizer = value
            self._known = module, optimizer
        return self._known


def _nothing() -> None:
    pass


def _referred(function: Any) -> Iterator[Any]:
    """Yield the objects a function is bound to, closes over, or names as globals."""
    yield getattr(function, "__self__", function)
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in function.__code__.co_names:
        yield function.__globals__.get(name)
