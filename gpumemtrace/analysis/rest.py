"""What of a line of memory is no block that the trace knows: names for it, and what it was."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["NOT_SEEN", "SUMMARISED", "split_rest"]

# As views call it: blocks from before the trace, or lost in a gap; and blocks that came and went
# within a step that was summarised since, to keep the file small.
NOT_SEEN = "not seen by the trace"
SUMMARISED = "summarised: detail aged out"


def split_rest(
    rest_bytes: npt.NDArray[np.int64], is_aged: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Tell `SUMMARISED` and `NOT_SEEN` apart, moment by moment.

    ``rest_bytes``: what a line says beyond the blocks that are listed, int64 (n), in order of time;
    ``is_aged``: bool (n), which moments lie in a summarised step. Of these as much counts as not
    seen as was so at the last moment in full detail. Returns both, int64 (n), which add up to
    ``rest_bytes``. Not seen is negative where frees were lost; summarised where a block that stays
    is listed before the line has it, as of such only the phase of birth is known.
    """
    last_known = np.maximum.accumulate(np.where(is_aged, -1, np.arange(len(rest_bytes))))
    before = np.where(last_known >= 0, rest_bytes[last_known], 0)
    not_seen = np.where(is_aged, np.minimum(before, rest_bytes).clip(min=0), rest_bytes)
    return rest_bytes - not_seen, not_seen
