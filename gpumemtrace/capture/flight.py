"""Writing what a flight recording holds, when the program asks for it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from gpumemtrace import _core
from gpumemtrace.capture.session import current_session

__all__ = ["dump"]


def dump(path: str | os.PathLike[str] | None = None, *, force: bool = False) -> Path | None:
    """Write what the flight recording holds, up to this call, and return the file's path.

    ``path``: None stands for the recording's own with ``.dump-1``, ``.dump-2`` … before the suffix.
    A file that is there already is left alone, unless ``force``. The recording goes on.

    Returns None where there is nothing to do: nothing is recorded in this process, or everything is
    written to the session's file as it comes (no ``flight_recorder``). A file that can't be written
    is a warning, and None: the training goes on.
    """
    session = current_session()
    if session is None or session.options.flight_recorder is None:
        return None
    try:
        wanted = "" if path is None else str(Path(path).absolute())
        return Path(_core.dump_flight(wanted, force))
    except (OSError, RuntimeError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        where = session.path if path is None else path
        warnings.warn(f"gpumemtrace: no dump to {where}: {why}", RuntimeWarning, stacklevel=2)
        return None
