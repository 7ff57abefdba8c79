"""From the path ids in the records of a trace to the names of phases."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

__all__ = ["PhaseNames"]


class PhaseNames:
    """The phases of a trace: nested ones are paths (``train/forward``), the leaf has the name.

    ``names``: each name once, in the order in which phases were first opened. ``paths``: each path
    as a tuple of names, outermost first.
    """

    def __init__(self, table: Mapping[int, tuple[int, str]]) -> None:
        """Take path id -> (id of the parent path, 0 = none; name)."""
        self._ids = np.array(sorted(table), np.int64)
        ids: list[int] = self._ids.tolist()
        self.paths: tuple[tuple[str, ...], ...] = tuple(_path(table, id) for id in ids)
        self.names: tuple[str, ...] = tuple(dict.fromkeys(path[-1] for path in self.paths))
        index = {name: i for i, name in enumerate(self.names)}
        # One entry more: path -1 (none) is phase -1.
        self._leaf = np.array([*(index[path[-1]] for path in self.paths), -1], np.int32)
        self._is_flat = self.paths == tuple((name,) for name in self.names)

    def path_of_id(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the index into ``paths`` for each path id; -1 for 0 and for unknown ids."""
        if not len(self._ids):
            return np.full(len(ids), -1, np.int32)
        if self._ids[-1] == len(self._ids) and self._ids[0] == 1:  # ids 1, 2, 3, …: the usual case
            if len(ids) and int(ids.max()) <= len(self._ids) and int(ids.min()) >= 0:
                return (ids - 1).astype(np.int32, copy=False)
            return np.where((ids > 0) & (ids <= len(self._ids)), ids - 1, -1).astype(np.int32)
        place = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[place] == ids, place, -1).astype(np.int32)

    def phase_of_path(self, paths: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the index into ``names`` for each index into ``paths``; -1 stays -1."""
        return paths if self._is_flat else self._leaf.take(paths, mode="wrap")


def _path(table: Mapping[int, tuple[int, str]], id: int) -> tuple[str, ...]:
    names: list[str] = []
    seen: set[int] = set()
    while id in table and id not in seen:  # a broken file may go round in circles
        seen.add(id)
        id, name = table[id]
        names.append(name)
    return tuple(reversed(names))
