"""Notice that a forward begins, at the outermost module.

`module_types` has each call of a module pass a native function of ours. While no forward is waited
for that is one comparison; while one is, the first module with parameters is the outermost one, and
those within it are not looked at until it returns or raises.

Nothing of it can be seen in torch's tables of hooks: modules keep torch's fast path, and
torch.compile compiles guards on those tables.

The native part: ``csrc/python/forward_watch.h``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gpumemtrace import _core
from gpumemtrace.capture.module_types import watch_module_types

__all__ = ["ForwardWatch", "forward_watch"]


@functools.cache
def forward_watch(torch: Any) -> ForwardWatch:
    """Return the one watch of this process: compiled code holds on to it between sessions."""
    return ForwardWatch(torch)


class ForwardWatch:
    """`start` before use, `stop` after it. What waits anew is native, too: another phase begins."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._leave: Callable[[], None] | None = None

    def start(self) -> None:
        """Wait for the next forward."""
        self._leave = watch_module_types(self._torch)
        _core.start_forwards()

    def stop(self) -> None:
        """Leave nothing behind in torch's modules."""
        if self._leave is not None:
            _core.stop_forwards()
            self._leave()
            self._leave = None

    def disarm(self) -> bool:
        """Don't look at modules called from now on, in whatever thread, until `release`.

        Give the result to `release`. False: this thread was within a forward or backward already.
        """
        return _core.disarm_forwards()

    def release(self, entered: bool) -> None:
        """End what `disarm` began."""
        _core.release_forwards(entered)

    def roots(self) -> list[Any]:
        """Return the outermost modules that have run: where parameters have their names from."""
        return _core.forward_roots()

    def inputs(self) -> list[tuple[int, bool, str | int, tuple[int, ...], Any]]:
        """Return (id of the module, whether it learns, name or position, shape, dtype), each once.

        Of the first few tensors that outermost modules were given; a bounded number.
        """
        return _core.forward_inputs()
