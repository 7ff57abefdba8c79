"""The kinds of automatic phases, as numbers for ``_core.begin_work`` and ``_core.end_work``.

The mirror of ``enum class Work`` in ``csrc/capture/phase_stack.h``, which also says what may happen
within what.
"""

from __future__ import annotations

__all__ = [
    "BACKWARD",
    "DATA",
    "EVAL",
    "FORWARD",
    "OPTIMIZER",
    "OPTIMIZER_WITH_CLOSURE",
    "ZERO_GRAD",
]

DATA, FORWARD, EVAL, BACKWARD, OPTIMIZER, ZERO_GRAD, OPTIMIZER_WITH_CLOSURE = range(7)
