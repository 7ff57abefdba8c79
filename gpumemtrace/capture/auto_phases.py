"""Phases and steps of a training loop, seen without a change to the script.

They partition the time of the thread that trains. Each phase lasts until the next one begins:

``init``
    from the beginning of the recording.
``data``
    from a DataLoader's ``__next__``, and after ``optimizer.step()`` until something else begins.
    Copies to the GPU that come after it belong to it.
``forward``
    from a call of the outermost module that is in training mode, with gradients enabled. The loss
    computed afterwards belongs to it. A module without parameters (a loss, an augmentation) begins
    nothing: it belongs to the phase it is called in.
``eval``
    the same for a module in eval mode, or without gradients.
``backward``
    from the outermost ``loss.backward()`` or ``torch.autograd.backward()``, recomputation of
    checkpointed activations included. Unscaling and clipping between it and the optimizer belong
    to it.
``optimizer``
    ``optimizer.step()``. At its return a step ends and ``data`` begins.
``zero_grad``
    only while ``zero_grad()`` runs; then what was before goes on.

Work within work belongs to it: modules called by a DataLoader's collate function are ``data``. What
an optimizer's closure does (LBFGS) is told apart, and ``optimizer`` goes on after its backward; so
is a backward or an optimizer step within a module's forward.

Steps are counted as `gpumemtrace.capture.steps` says. A step that GradScaler skips, because of an
infinite gradient, does not call ``optimizer.step()`` and ends no step. With several threads that
call modules at the same time, ``forward`` and ``eval`` are seen in the first of them only; all else
in each.

How: hooks that torch offers for optimizers; functions of ours around ``zero_grad``,
``torch.autograd.backward`` and the DataLoader's ``__next__``; `forward_watch` and `compiled_code`
for the rest. What they do at either end is native (``csrc/python/bind_training_calls.cc``), and the
last two functions are so themselves: torch.compile never looks into what they stand for.
``benchmarks/marks.py`` measures what a step of it costs.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from gpumemtrace import _core
from gpumemtrace.capture import compiled_code
from gpumemtrace.capture.forward_watch import forward_watch
from gpumemtrace.capture.import_watch import forget, when_imported
from gpumemtrace.capture.steps import counter
from gpumemtrace.capture.training_record import TrainingRecord
from gpumemtrace.capture.watch import OptimizerTags

__all__ = ["AutoPhases"]

# What _core.end_optimizer returns, added up; 0 = it has done all that there is to do: it is not the
# step of an optimizer that another one wraps; its first step, or the first with a new group; a
# phase is to be left.
_STEPPED, _HAS_NEWS, _BEGUN = 1, 2, 4


class AutoPhases:
    """The automatic phases of one session: from construction until `stop`.

    ``torch`` is imported. Nothing here raises into the user's calls.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._is_compiling = torch.compiler.is_dynamo_compiling
        self._watch = forward_watch(torch)
        self._watch.start()  # first: what is put into torch below relies on it
        _core.forget_optimizers()
        self._tags = OptimizerTags(self._watch.roots)
        self.training = TrainingRecord(torch, self._watch)
        """What is learnt of the training, for the run record."""
        self._undo: list[Callable[[], None]] = []
        self._wrappers: list[Any] = []

        self._undo.append(self.training.stop)
        self._put(torch.autograd, "backward", _core.around_backward)
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            self._wrappers.append(self._put(owner, "zero_grad", self._around_zero_grad))
        optimizers = sys.modules["torch.optim.optimizer"]
        for handle in (
            optimizers.register_optimizer_step_pre_hook(self._before_step()),
            optimizers.register_optimizer_step_post_hook(self._after_step()),
        ):
            self._undo.append(handle.remove)
        for module, callback in (
            ("torch.utils.data.dataloader", self._watch_data_loader),
            ("torch._dynamo.eval_frame", self._watch_compiled_code),
        ):
            when_imported(module, callback)
            self._undo.append(functools.partial(forget, module, callback))

    def stop(self) -> None:
        """Take everything back, except what somebody else has wrapped meanwhile."""
        self._watch.stop()
        while self._undo:
            self._undo.pop()()

    def _put(self, owner: Any, name: str, around: Callable[[Any], Any]) -> Any:
        original = getattr(owner, name)
        wrapper = functools.update_wrapper(around(original), original)
        setattr(owner, name, wrapper)

        def undo() -> None:
            if getattr(owner, name) is wrapper:
                setattr(owner, name, original)

        self._undo.append(undo)
        return wrapper

    # What torch.compile traces is Python, and leaves a call alone that is being traced: nothing of
    # ours in the graph. Each leaves one alone that is part of what is going on (its begin function
    # says so).

    def _around_zero_grad(self, original: Any) -> Any:
        is_compiling = self._is_compiling
        begin, end = _core.begin_zero_grad, _core.end_zero_grad

        def zero_grad(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not begin():
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                end()

        return zero_grad

    def _watch_data_loader(self) -> None:
        loader = sys.modules["torch.utils.data.dataloader"]
        self._put(loader._BaseDataLoaderIter, "__next__", _core.around_next)

    def _watch_compiled_code(self) -> None:
        skip_code = getattr(sys.modules["torch._dynamo.eval_frame"], "skip_code", None)
        if skip_code is not None:  # called from compiled code, our wrappers run as they are
            for wrapper in [*self._wrappers, *self.training.wrappers]:
                skip_code(wrapper.__code__)
        undo = compiled_code.patch(self._torch, self._watch, counter.optimizer_stepped)
        self._undo.append(undo)

    def _before_step(self) -> Any:
        is_compiling, begin, tags = self._is_compiling, _core.begin_optimizer, self._tags

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_compiling():
                return
            if begin(optimizer, args, kwargs):
                tags.before_step(optimizer)

        return before

    def _after_step(self) -> Any:
        is_compiling, end, leave = self._is_compiling, _core.end_optimizer, _core.leave_optimizer
        tags, training, stepped = self._tags, self.training, counter.optimizer_stepped

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_compiling() or not (told := end(optimizer)):
                return
            if told & _HAS_NEWS:
                tags.after_step(optimizer)
                training.optimizer_stepped(optimizer)
            if told & _STEPPED:
                # Before the phase that follows is entered: that one belongs to the next step.
                stepped(optimizer)
            if told & _BEGUN:
                leave()

        return after
