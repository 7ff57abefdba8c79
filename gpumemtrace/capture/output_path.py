"""Where a trace goes: nothing is overwritten, and no two processes write the same file."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import sys
from pathlib import Path

from gpumemtrace.capture.options import RecordingOptions
from gpumemtrace.capture.rank import local_rank, rank
from gpumemtrace.errors import InstallError

__all__ = ["check_writable", "choose_path", "script_name", "takes_stream"]

SUFFIX = ".gmt"
_OWN_OUTPUTS = ("-", "/dev/stdout", "/dev/stderr", "/dev/tty")


def choose_path(options: RecordingOptions, *, may_raise: bool = True) -> Path:
    """Return the absolute path of this process's trace.

    ``options.output`` may be

    - None: ``gpumemtrace-<script>.<rank>.<pid>.gmt`` in the working directory;
    - a folder (it exists, or ends in ``/``): the same name in there;
    - a pattern with ``{script} {rank} {local_rank} {host} {pid}`` in it;
    - a pipe (`mkfifo`, or ``>(...)`` of a shell) or a device: it is written into;
    - a plain file name: the process that was asked writes it, each of its child processes adds
      ``.<rank>.<pid>`` before the suffix.

    A file that is there already is left alone unless ``options.force``: a name that we made up
    gets a number, a name that the user typed raises `InstallError` (with ``may_raise=False`` it
    gets a number too: a training that only inherited the name must not fail for it).
    """
    output = options.output
    made_up = True
    if output is None:
        path = Path(_default_name())
    elif output.endswith(os.sep) or os.path.isdir(output):  # noqa: PTH112 (never raises)
        path = Path(output, _default_name())
    elif (filled := _fill(output)) != output:
        path = Path(filled)
    else:
        path = Path(output)
        made_up = _is_child()
        if made_up:
            path = path.with_name(f"{path.stem}.{rank()}.{os.getpid()}{path.suffix or SUFFIX}")
    path = path.absolute()
    if may_raise and not path.parent.is_dir():
        raise InstallError(f"{path.parent} is not a folder: make it, or choose another path")
    if may_raise and (most := _longest_name(path.parent)) < len(os.fsencode(path.name)):
        raise InstallError(
            f"{path.name[:40]}… is too long a name: {most} bytes at most in {path.parent}; "
            "choose a shorter one"
        )
    if may_raise and _is_own_output(output):
        raise InstallError(
            f"{output} is where the program itself writes: give a file, or a pipe that you made "
            "(mkfifo trace; cat trace > copy.gmt & and -o trace)"
        )
    if not made_up and takes_stream(path):
        return path
    if not os.path.lexists(path) or (options.force and not path.is_dir()):
        return path
    if not made_up and may_raise:
        what = "is a folder" if path.is_dir() else "is there already"
        raise InstallError(f"{path} {what}: choose another path, or overwrite with force (-f)")
    return _numbered(path)


def takes_stream(path: Path) -> bool:
    """Whether it is a pipe or a device: nothing in it can be overwritten, nor be read again."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def check_writable(folder: Path) -> None:
    """Raise `PermissionError` where no file can be made."""
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


def script_name() -> str:
    """Return a short name for the running program, safe in a file name."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    argv0 = sys.argv[0] if getattr(sys, "argv", None) else ""
    if spec is not None and spec.name:  # python -m package.module
        name = spec.name.removesuffix(".__main__")
    elif argv0 == "-c":
        name = "command"
    elif argv0 in ("", "-"):
        name = "interactive"
    else:
        name = Path(argv0).stem
    return re.sub(r"[^\w.+-]+", "_", name)[:80] or "python"


def _longest_name(folder: Path) -> int:
    try:
        return os.pathconf(folder, "PC_NAME_MAX")
    except OSError:
        return sys.maxsize


def _default_name() -> str:
    return f"gpumemtrace-{script_name()}.{rank()}.{os.getpid()}{SUFFIX}"


def _fill(pattern: str) -> str:
    values = {
        "script": script_name(),
        "rank": rank(),
        "local_rank": local_rank(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
    return re.sub(r"\{(\w+)\}", lambda m: str(values.get(m[1], m[0])), pattern)


def _is_child() -> bool:
    return os.environ.get("GPUMEMTRACE_PARENT", str(os.getpid())) != str(os.getpid())


def _is_own_output(output: str | None) -> bool:
    return output in _OWN_OUTPUTS or (
        output is not None and re.fullmatch(r"/(dev|proc/self)/fd/[012]", output) is not None
    )


def _numbered(path: Path) -> Path:
    number = 1
    while os.path.lexists(candidate := path.with_name(f"{path.stem}.{number}{path.suffix}")):
        number += 1
    return candidate
