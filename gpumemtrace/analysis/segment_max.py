"""The exact maximum of a line between cuts (step marks, phase marks), streamed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["SegmentMax"]


class SegmentMax:
    """Maxima of some lines over consecutive segments of records.

    A segment's maximum includes the value with which it begins, as the allocator's own peak
    counters do after a reset. ``last``: int64, the lines as of now; ``running``: int64, the maxima
    of the segment that is open.
    """

    def __init__(self, last: npt.ArrayLike) -> None:
        """Begin a segment at the given values of the lines."""
        self.last = np.array(last, np.int64)
        self.running = self.last.copy()

    def feed(
        self,
        rows: npt.NDArray[np.intp],
        values: Sequence[npt.NDArray[np.int64]],
        cuts: npt.NDArray[np.intp],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Take the next points; return maximum and end value of each segment that they close.

        ``rows``: places of the points, ascending; ``values``: per line, the points' values;
        ``cuts``: places before which a segment ends, ascending. Both results have the shape
        (cuts, lines).
        """
        edges = np.concatenate([[0], np.searchsorted(rows, cuts), [len(rows)]])
        has_points = edges[1:] > edges[:-1]
        starts = edges[:-1][has_points]
        peaks = np.empty((len(edges) - 1, len(values)), np.int64)
        ends = np.empty_like(peaks)
        for i, line in enumerate(values):
            # The value before each edge: the last point's, or the one carried in.
            carried = np.full(len(edges), self.last[i])
            carried[edges > 0] = line[edges[edges > 0] - 1]
            peaks[:, i] = carried[:-1]
            peaks[0, i] = self.running[i]
            if len(starts):
                peaks[has_points, i] = np.maximum(
                    peaks[has_points, i], np.maximum.reduceat(line, starts)
                )
            ends[:, i] = carried[1:]
        self.last = ends[-1].copy()
        self.running = peaks[-1].copy()
        return peaks[:-1], ends[:-1]
