"""Run a Python program in this process as ``python`` itself would: a script, ``-m``, ``-c``.

The program gets a fresh ``__main__``, its own ``sys.argv`` and ``sys.path[0]``. Its exit status is
that of an untraced run, and so is what it writes to stderr: our frames are not in its traceback.
"""

from __future__ import annotations

import builtins
import io
import runpy
import sys
import types
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, SourceFileLoader
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

from gpumemtrace.errors import GpuMemTraceError

__all__ = ["Program", "run_program"]


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run: exactly one of ``script``, ``module`` and ``code``, and its arguments."""

    script: str | None = None
    module: str | None = None
    code: str | None = None
    arguments: Sequence[str] = ()


def run_program(program: Program) -> int:
    """Run it to its end; return 0. What the program raises ends this process as it would end it.

    Raises `GpuMemTraceError` when there is no such script, before anything has run.
    """
    run = _prepare(program)
    try:
        run()
    except SystemExit:
        raise
    except BaseException as error:
        traceback = _without_our_frames(error.__traceback__)
        error.__traceback__ = traceback
        show = sys.excepthook  # perhaps the program's own
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, traceback
        if isinstance(error, Exception):
            # Whatever calls us may handle errors of its own; this one is none of them.
            show(type(error), error, traceback)
            raise SystemExit(1) from None

        # KeyboardInterrupt: the interpreter itself has to end with the signal.
        def show_without_our_frames(kind: Any, error: BaseException, _: Any) -> None:
            error.__traceback__ = traceback
            show(kind, error, traceback)

        sys.excepthook = show_without_our_frames
        raise
    return 0


def _prepare(program: Program) -> Callable[[], object]:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    main.__loader__ = BuiltinImporter
    if "__annotations__" in vars(sys.modules["__main__"]):  # until Python 3.13
        vars(main).update(__annotations__={})
    if program.module is not None:
        name = program.module
        _enter(main, [name, *program.arguments], str(Path.cwd()))
        # What `python -m` itself calls. It looks the module up, and sets sys.argv[0] to its file.
        return lambda: runpy._run_module_as_main(name)  # type: ignore[attr-defined]
    if program.code is not None:
        text = program.code
        _enter(main, ["-c", *program.arguments], "")
        return lambda: exec(_compile(text, "<string>"), main.__dict__)
    assert program.script is not None
    path = Path(program.script)
    argv = [program.script, *program.arguments]
    if path.is_dir() or (path.is_file() and zipfile.is_zipfile(path)):  # has a __main__.py in it
        _enter(main, argv, str(path.absolute()))
        return lambda: runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
    try:
        with io.open_code(str(path.absolute())) as script:
            source = script.read()
    except OSError as error:
        raise GpuMemTraceError(f"can't open {path}: {error.strerror}") from error
    file = main.__file__ = str(path.absolute())
    main.__loader__ = SourceFileLoader("__main__", file)
    main.__dict__["__cached__"] = None
    _enter(main, argv, str(path.resolve().parent))
    return lambda: exec(_compile(source, file), main.__dict__)


def _compile(source: str | bytes, name: str) -> CodeType:
    # Here and not earlier: a SyntaxError is the program's. Nor does it inherit our __future__.
    return compile(source, name, "exec", dont_inherit=True)


def _enter(main: types.ModuleType, argv: list[str], path0: str) -> None:
    global _former_main
    _former_main = sys.modules["__main__"]  # kept alive: our own functions live in it
    sys.modules["__main__"] = main
    sys.argv = argv
    if not getattr(sys.flags, "safe_path", False):  # else there is no such entry
        sys.path[0] = path0


_former_main: types.ModuleType | None = None


def _without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_globals is globals():
        traceback = traceback.tb_next
    return traceback
