"""Run a function right after a module has been imported, whoever imports it.

The launcher must reach torch before the user's code does, and must not import it itself: the
script may still want to set environment variables that torch reads at import.

While a watched module has not been imported, one finder stands first in ``sys.meta_path``. For any
other name it costs one dictionary lookup; for the watched one it lets the normal finders find the
module and stands in for its loader until the module body has run. Afterwards nothing of it is left:
not the finder, and not the stand-in in the module's ``__spec__`` or ``__loader__``.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType

__all__ = ["forget", "when_imported"]

Callback = Callable[[], None]

_lock = threading.RLock()
_waiting: dict[str, list[Callback]] = {}


def when_imported(name: str, callback: Callback) -> None:
    """Call ``callback()`` as soon as module ``name`` has been imported; at once if it is.

    A module whose import is in progress counts as imported. The callback runs in the importing
    thread, before the ``import`` statement returns. An ``Exception`` from it becomes one
    ``RuntimeWarning``: the user's import never fails because of it (``SystemExit`` and the like
    do go through). An import that fails leaves the callback waiting for the next attempt.
    """
    with _lock:
        if name not in sys.modules:
            _waiting.setdefault(name, []).append(callback)
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)
            return
    _call(name, callback)


def forget(name: str, callback: Callback) -> None:
    """Take back a `when_imported` that has not run yet; nothing happens if there is none."""
    with _lock:
        callbacks = _waiting.get(name, [])
        if callback in callbacks:
            callbacks.remove(callback)
        if not callbacks:
            _waiting.pop(name, None)
        _leave_when_idle()


def _call(name: str, callback: Callback) -> None:
    try:
        callback()
    except Exception as error:
        warnings.warn(
            f"gpumemtrace: could not set up after the import of {name}: "
            f"{type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


def _leave_when_idle() -> None:
    if not _waiting and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself; hands a watched module's loader to `_Notifier`."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _waiting:
            return None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                # A namespace package has no loader, an ancient loader no exec_module: leave both.
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Notifier(fullname, spec.loader)
                return spec
        return None


class _Notifier(importlib.abc.Loader):
    """Stands in for a loader until the module body has run, then calls who waits."""

    def __init__(self, name: str, loader: importlib.abc.Loader) -> None:
        self._name = name
        self._loader = loader

    def __getattr__(self, attribute: str) -> object:
        return getattr(self._loader, attribute)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module body may look at these (importlib.resources, inspect): give it the real ones.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        with _lock:
            callbacks = _waiting.pop(self._name, [])
            _leave_when_idle()
        for callback in callbacks:
            _call(self._name, callback)


_finder = _Finder()
