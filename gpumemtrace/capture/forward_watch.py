"""Notice that a forward begins, at the outermost module, without a hook on every module.

A global forward pre-hook stands in torch's table only while one is waited for. The first module
that is called finds it there; it takes itself out before the module's body runs, so the modules
within see an empty table, torch's fast path. What puts it back is a hook on that one module, which
runs at the end of its call, also when forward raised, and is then removed too. So a forward costs
one pre-hook and one hook, whether it has three modules in it or three thousand.

An empty table is also what torch.compile needs: it compiles guards on the table into its code, and
can't trace the hook. `disarm` empties it until `release`.

The hooks themselves are native: ``csrc/python/bind_forward_watch.cc``.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpumemtrace import _core

__all__ = ["ForwardWatch", "forward_watch"]


@functools.cache
def forward_watch(torch: Any) -> ForwardWatch:
    """Return the one watch of this process: compiled code holds on to it between sessions."""
    return ForwardWatch(torch)


class ForwardWatch:
    """`start` before use, `stop` after it; `rearm` when another phase begins."""

    def __init__(self, torch: Any) -> None:
        self._hooks = _core.ForwardHooks(
            torch.nn.modules.module._global_forward_pre_hooks,
            # A number that no other hook has, in that table or in a module's.
            torch.utils.hooks.RemovableHandle(OrderedDict()).id,
            tensor=torch.Tensor,
            has_parameters=_has_parameters,
            is_grad_enabled=torch.is_grad_enabled,
            current_autograd_node=torch._C._current_autograd_node,
        )
        self.start = self._hooks.start
        """Wait for the next forward."""
        self.stop = self._hooks.stop
        """Leave nothing behind in torch's tables."""
        self.rearm = self._hooks.rearm
        """Wait for the next forward, unless some thread is within one or within a backward."""
        self.disarm = self._hooks.disarm
        """Don't look at modules called from now on, in whatever thread, until `release`.

        Give the result to `release`. False: this thread was within a forward or backward already.
        """
        self.release = self._hooks.release
        """End what `disarm` began."""
        self.leave_forward = self._hooks.leave_forward
        """Nothing is going on in this thread: a forward whose end was never told is over."""
        self.roots = self._hooks.roots
        """Return the outermost modules that have run: where parameters have their names from."""
        self.inputs = self._hooks.inputs
        """Return (id of the module, whether it learns, name or position, shape, dtype), each once.

        Of the first few tensors that outermost modules were given; a bounded number.
        """

    @contextmanager
    def out_of_the_table(self) -> Iterator[None]:
        """Let somebody look at torch's table as if we were not there."""
        if not self._hooks.is_armed:
            yield
            return
        entered = self.disarm()
        try:
            yield
        finally:
            self.release(entered)


def _has_parameters(module: Any) -> bool:
    if any(parameter is not None for parameter in module._parameters.values()):
        return True
    return any(child is not None and _has_parameters(child) for child in module._modules.values())
