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

How: hooks that torch offers for optimizers; functions of ours around ``torch.autograd.backward``,
``zero_grad`` and the DataLoader's ``__next__``; `forward_watch` and `compiled_code` for the rest.
``benchmarks/marks.py`` measures what a step of it costs.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from gpumemtrace import _core
from gpumemtrace.capture import compiled_code
from gpumemtrace.capture.forward_watch import forward_watch
from gpumemtrace.capture.import_watch import forget, when_imported
from gpumemtrace.capture.steps import counter
from gpumemtrace.capture.training_record import TrainingRecord
from gpumemtrace.capture.watch import OptimizerTags
from gpumemtrace.capture.work import (
    BACKWARD,
    DATA,
    OPTIMIZER,
    OPTIMIZER_WITH_CLOSURE,
    ZERO_GRAD,
)

__all__ = ["AutoPhases"]


class AutoPhases:
    """The automatic phases of one session: from construction until `stop`.

    ``torch`` is imported. Nothing here raises into the user's calls.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._is_compiling = torch.compiler.is_dynamo_compiling
        self._current_autograd_node = torch._C._current_autograd_node
        self._watch = forward_watch(torch)
        # By thread, the optimizers within step(); whether that is a phase, whether it is to be
        # tagged.
        self._stepping: dict[int, list[tuple[Any, bool, bool]]] = {}
        self._tags = OptimizerTags(self._watch.roots)
        self.training = TrainingRecord(torch, self._watch)
        """What is learnt of the training, for the run record."""
        self._undo: list[Callable[[], None]] = []
        self._wrappers: list[Any] = [*self.training.wrappers]

        self._undo.append(self.training.stop)
        self._wrap(torch.autograd, "backward", self._around_backward)
        self._wrap(torch.optim.Optimizer, "zero_grad", self._around_zero_grad)
        self._wrap(torch.nn.Module, "zero_grad", self._around_zero_grad)
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
        self._watch.start()

    def stop(self) -> None:
        """Take everything back, except what somebody else has wrapped meanwhile."""
        self._watch.stop()
        while self._undo:
            self._undo.pop()()

    def _wrap(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        wrapper = functools.wraps(original)(around(original))
        setattr(owner, name, wrapper)
        self._wrappers.append(wrapper)

        def undo() -> None:
            if getattr(owner, name) is wrapper:
                setattr(owner, name, original)

        self._undo.append(undo)

    # Each `around` leaves a call alone that torch.compile traces (nothing of ours in the graph),
    # and one that is part of what is going on (begin_work says so).

    def _around_backward(self, original: Any) -> Any:
        is_compiling, watch = self._is_compiling, self._watch
        current_autograd_node, training = self._current_autograd_node, self.training

        def backward(*args: Any, **kwargs: Any) -> Any:
            # A node: a backward within a backward, perhaps in a thread of autograd's, which must
            # not get a phase of its own (reentrant checkpointing).
            if (
                is_compiling()
                or current_autograd_node() is not None
                or not _core.begin_work(BACKWARD)
            ):
                return original(*args, **kwargs)
            training.backwards += 1
            entered = watch.disarm()
            try:
                return original(*args, **kwargs)
            finally:
                _core.end_work(BACKWARD)
                watch.release(entered)

        return backward

    def _around_zero_grad(self, original: Any) -> Any:
        is_compiling, watch = self._is_compiling, self._watch

        def zero_grad(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not _core.begin_work(ZERO_GRAD):
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                _core.end_work(ZERO_GRAD)
                watch.rearm()

        return zero_grad

    def _around_next(self, original: Any) -> Any:
        watch = self._watch

        def next_batch(self: Any) -> Any:
            if not _core.begin_work(DATA):
                return original(self)
            watch.leave_forward()  # left by a KeyboardInterrupt
            try:
                return original(self)
            finally:
                _core.end_work(DATA)
                watch.rearm()

        return next_batch

    def _watch_data_loader(self) -> None:
        loader = sys.modules["torch.utils.data.dataloader"]
        self._wrap(loader._BaseDataLoaderIter, "__next__", self._around_next)

    def _watch_compiled_code(self) -> None:
        skip_code = getattr(sys.modules["torch._dynamo.eval_frame"], "skip_code", None)
        if skip_code is not None:  # called from compiled code, our wrappers run as they are
            for wrapper in self._wrappers:
                skip_code(wrapper.__code__)
        undo = compiled_code.patch(self._torch, self._watch, counter.optimizer_stepped)
        self._undo.append(undo)

    def _before_step(self) -> Any:
        is_compiling, node = self._is_compiling, self._current_autograd_node
        stepping, tags = self._stepping, self._tags
        get_ident, begin_work = threading.get_ident, _core.begin_work

        def before(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_compiling():
                return
            going = stepping.get(thread := get_ident())
            if going is None:
                going = stepping[thread] = []
            # Within a backward (one optimizer a parameter), in autograd's thread: no phase.
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            work = OPTIMIZER if closure is None else OPTIMIZER_WITH_CLOSURE
            begun = node() is None and begin_work(work)
            if begun and going:
                going.clear()  # a step that raised
            news = tags.is_news(optimizer)
            going.append((optimizer, begun, news))
            if news:
                tags.before_step(optimizer)

        return before

    def _after_step(self) -> Any:
        is_compiling, stepping, tags = self._is_compiling, self._stepping, self._tags
        training = self.training
        get_ident, rearm = threading.get_ident, self._watch.rearm

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if is_compiling():
                return
            going = stepping.get(get_ident())
            if not going or going[-1][0] is not optimizer:
                return
            _, begun, news = going.pop()
            if news:
                tags.after_step(optimizer)
                training.optimizer_stepped(optimizer)
            if not going:  # else the step of an optimizer that wraps this one
                # Before the phase that follows is entered: that one belongs to the next step.
                counter.optimizer_stepped(optimizer)
            if begun:
                _core.end_work(OPTIMIZER)
                rearm()

        return after
