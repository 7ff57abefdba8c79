"""Put the tracing allocator in torch's place.

The allocator itself is native (``csrc/torch``): torch's own caching allocator, with every call
recorded. Here is what surrounds it: whether this build fits the torch that is imported, whether it
is still time, and a message that says what to type when not. torch is imported on first use only.
"""

from __future__ import annotations

import functools
import importlib
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpumemtrace import build_info
from gpumemtrace.capture.cuda_init import find_initialiser
from gpumemtrace.errors import InstallError, LateInstallError, TorchMismatchError

__all__ = [
    "TracingAllocator",
    "ensure_installed",
    "is_installed",
    "library_path",
]

if TYPE_CHECKING:
    TracingAllocator: type[Any]  # made on first use, see `__getattr__`


def ensure_installed() -> None:
    """Make torch allocate through the tracing allocator; nothing happens when it does already.

    Works until the first CUDA memory is handed out, also after ``torch.cuda.init()``.

    Raises `InstallError` when torch, CUDA support in torch or the hook is missing, or when another
    pluggable allocator is installed; `TorchMismatchError` when the hook was built for another
    torch; `LateInstallError` when CUDA memory is in use already. Each says what to type.
    """
    torch = _import_torch()
    hook = _load_hook(torch)
    current = hook.current_allocator()
    if current == "tracing":
        return
    if current not in ("native", "cudaMallocAsync"):
        raise _another_allocator(current)
    if not hook.is_initialized():
        torch.cuda.memory.change_current_allocator(_tracing_allocator_class()())
        return
    blocks = hook.live_blocks()
    if blocks:
        raise _too_late(blocks)
    hook.swap_in_late()


def is_installed() -> bool:
    """Return whether torch allocates through the tracing allocator now. Imports nothing."""
    hook = sys.modules.get("gpumemtrace._torch_hook")
    return hook is not None and hook.current_allocator() == "tracing"


def library_path() -> str:
    """Return the path of the shared object with ``gpumemtrace_malloc`` and ``gpumemtrace_free``.

    For frameworks that insist on torch's stock way of changing the allocator::

        torch.cuda.memory.CUDAPluggableAllocator(
            gpumemtrace.library_path(), "gpumemtrace_malloc", "gpumemtrace_free")

    Memory then still comes from torch's caching allocator, every call is recorded, and running out
    of it raises ``torch.OutOfMemoryError``. But torch's stock wrapper has limits that
    `TracingAllocator` has not: statistics, snapshots, history, CUDA graphs, ``MemPool`` and IPC
    raise; ``empty_cache`` and memory fractions do nothing; ``record_stream`` does nothing, so a
    program that frees memory which another stream still reads computes wrong results.

    Raises `InstallError` or `TorchMismatchError` as `ensure_installed` does.
    """
    path = _load_hook(_import_torch()).__file__
    assert path is not None
    return path


def __getattr__(name: str) -> Any:
    if name == "TracingAllocator":
        return _tracing_allocator_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _tracing_allocator_class() -> type:
    """Make the class on first use: its base is torch's."""
    torch = _import_torch()
    hook = _load_hook(torch)

    stock: Any = torch.cuda.memory.CUDAPluggableAllocator

    class TracingAllocator(stock):  # type: ignore[misc]
        """torch's native CUDA allocator, recorded: same memory, same statistics, same errors.

        ``gpumemtrace.install()`` puts it in place; by hand it is
        ``torch.cuda.memory.change_current_allocator(gpumemtrace.TracingAllocator())``, before the
        first use of CUDA. There is one underlying allocator a process, however many of these.
        """

        def __init__(self) -> None:
            try:
                self._allocator = hook.make_allocator()
            except RuntimeError as error:
                raise _another_allocator(hook.current_allocator()) from error

    TracingAllocator.__module__ = "gpumemtrace"
    TracingAllocator.__qualname__ = "TracingAllocator"
    return TracingAllocator


def _import_torch() -> ModuleType:
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise InstallError(f"importing torch failed: {error}") from error
        raise InstallError(build_info.no_torch()) from None
    except ImportError as error:  # a CUDA library that the loader can't find, as a rule
        raise InstallError(f"importing torch failed: {error}") from error
    if torch.version.cuda is None:
        raise InstallError(
            f"torch {torch.__version__} is not a CUDA build, and tracing needs one: "
            f"{build_info.how_to_fix('--force-reinstall torch')}"
        )
    return torch


def _load_hook(torch: ModuleType) -> ModuleType:
    built_for = build_info.torch_version()
    if built_for is None:
        raise InstallError(
            f"gpumemtrace was built without its torch hook ({build_info.why_no_hook()}): "
            f"{build_info.how_to_fix()}"
        )
    # Before the library is loaded: with another torch it may not only fail to load, but crash.
    if built_for != str(torch.__version__):
        raise TorchMismatchError(
            f"gpumemtrace was built for torch {built_for}, but torch {torch.__version__} is "
            f"imported: {build_info.how_to_rebuild()}"
        )
    try:
        return importlib.import_module("gpumemtrace._torch_hook")
    except ImportError as error:
        raise TorchMismatchError(
            f"the torch hook, built for torch {built_for}, can't be loaded ({error}): "
            f"{build_info.how_to_rebuild()}"
        ) from error


def _another_allocator(name: str) -> InstallError:
    return InstallError(
        f"another CUDA allocator is installed (it calls itself {name!r}): gpumemtrace records "
        "torch's own allocator and can't stand in front of a foreign one. Remove the call to "
        "torch.cuda.memory.change_current_allocator (or of RMM and the like), or trace without it"
    )


def _too_late(blocks: int) -> LateInstallError:
    where = find_initialiser()
    first = f", first used at {where}" if where is not None else ""
    return LateInstallError(
        f"CUDA memory is in use already ({blocks} blocks{first}): start the program with "
        f"{_launcher_command()}, or call gpumemtrace.install() before that line"
    )


def _launcher_command() -> str:
    """Return how to start this program so that tracing begins before its first line."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    if spec is not None and spec.name:
        program = ["-m", spec.name.removesuffix(".__main__")]
    elif file is not None:
        program = [_relative(file)]
    else:
        program = ["SCRIPT.py"]
    return f"`gpumemtrace run {shlex.join([*program, *sys.argv[1:]])}`"


def _relative(file: str) -> str:
    path = Path(file)
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
