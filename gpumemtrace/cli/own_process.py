"""Start ``gpumemtrace`` again, in a process of its own."""

from __future__ import annotations

__all__ = ["python_arguments"]

# As in the console script: sys.path[0] is the folder of the executables. After `python -m` it would
# be the working directory, and there the source folder gpumemtrace/ may lie, without a native part.
_START = """\
import sys
if not getattr(sys.flags, "safe_path", False):
    sys.path[0] = sys.prefix + "/bin"
from gpumemtrace.cli.main import main
sys.exit(main())
"""


def python_arguments(*arguments: str) -> list[str]:
    """Return what to give this interpreter so that it runs ``gpumemtrace <arguments>``."""
    return ["-c", _START, *arguments]
