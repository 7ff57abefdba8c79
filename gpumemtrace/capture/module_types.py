"""Every class of torch's modules, while somebody watches how modules are called.

The native part (``csrc/python/module_types.h``) puts a function of ours where Python calls a
module. New classes are noticed by an ``__init_subclass__`` of ours in ``torch.nn.Module``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpumemtrace import _core

__all__ = ["watch_module_types"]

_watches = 0
_told: list[Callable[[type], object]] = []
_undo: Callable[[], None] | None = None


def watch_module_types(
    torch: Any, new_class: Callable[[type], object] | None = None
) -> Callable[[], None]:
    """Begin to watch; return what ends it. ``new_class(cls)`` is told of each class added since.

    Raises for a torch that has changed.
    """
    global _undo, _watches
    if _watches == 0:
        _core.make_forward_watch(
            module_type=torch.nn.Module,
            tensor=torch.Tensor,
            is_grad_enabled=torch.is_grad_enabled,
            current_autograd_node=torch._C._current_autograd_node,
        )
        _core.start_module_types(_told)
        _undo = _watch_new_classes(torch.nn.Module)
    _watches += 1
    if new_class is not None:
        _told.append(new_class)

    def leave() -> None:
        global _watches
        _watches -= 1
        if new_class is not None:
            _told.remove(new_class)
        if _watches == 0 and _undo is not None:
            _undo()
            _core.stop_module_types()

    return leave


def _watch_new_classes(module: Any) -> Callable[[], None]:
    if "__init_subclass__" in vars(module):  # not in any torch that we know
        return lambda: None
    ours: Any = classmethod(_core.init_module_subclass)
    module.__init_subclass__ = ours

    def undo() -> None:
        if vars(module).get("__init_subclass__") is ours:
            del module.__init_subclass__

    return undo
