"""What the numbers in the ``site`` column stand for: modules and call sites."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from gpumemtrace.schema import StackState
from gpumemtrace.trace_file import Names

__all__ = ["NO_STACK", "Frame", "Sites"]

NO_STACK: Mapping[StackState, str] = {
    StackState.OFF: "stacks were off",
    StackState.TAKEN: "not known",
    StackState.FORWARD: "backward, forward operator not known",
    StackState.TOO_SMALL: "below the size asked for",
    StackState.NO_PYTHON: "no Python in this thread",
    StackState.TOO_MANY: "too many different stacks",
}
"""Why an event has no call site."""

_BACKWARD = "torch::autograd::generated::"  # functions of PyTorch's derivatives
_STATES = frozenset(map(int, StackState))  # a newer recorder may know others
_MOST_FRAMES = 1024  # of a stack in a damaged file


@dataclass(frozen=True)
class Frame:
    """One line of a call stack; ``line`` 0 = unknown."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return self.told(PurePath(self.file).name)

    def told(self, file: str) -> str:
        """Return the frame as text, with this name of its file."""
        if self.is_native:  # without the parameters; often neither file nor line are known
            function = self.function.replace("(anonymous namespace)::", "").partition("(")[0]
            return function if not self.line else f"{file}:{self.line} {function}"
        return f"{file}:{self.line} {self.function}"

    @property
    def is_torch(self) -> bool:
        """Whether it lies in PyTorch itself, in code that PyTorch made, or in Python's `runpy`."""
        if self.file.startswith(("<frozen ", "<eval_with_key>")):
            return True
        folders = PurePath(self.file).parts[:-1]
        return any(name == "torch" or name.startswith("torchinductor") for name in folders)

    @property
    def is_native(self) -> bool:
        """Whether it is a line of C++ or machine code, which only imported snapshots have."""
        native = (".cpp", ".cc", ".cxx", ".c", ".cu", ".h", ".hpp", ".cuh", ".inc", ".S")
        return self.file in ("", "??") or PurePath(self.file).suffix in native or ".so" in self.file

    @property
    def is_launcher(self) -> bool:
        """Whether it lies in what ran the program: ``gpumemtrace run``, ``simulate``."""
        return PurePath(self.file).parts[-3:-1] in (
            ("gpumemtrace", "capture"),
            ("gpumemtrace", "cli"),
        )


class Sites:
    """The tables behind the ``site`` column. Arrays are indexed by the site number; 0 is none.

    ``module_names``: paths, each once; ``module`` int32: index into it, -1 = none. ``frame``
    int64: the innermost frame, 0 = none. ``state`` uint8: whose call site that is, or why there
    is none (`gpumemtrace.schema.StackState`).

    A path is that within the outermost module; what the outermost module makes itself stands under
    the name of its class. With several outermost modules that have modules in them, each path
    begins with that name.
    """

    def __init__(self, names: Names) -> None:
        """Build the arrays from the tables of a trace."""
        self._names = names
        count = max(names.sites, default=0) + 1
        self.module = np.full(count, -1, np.int32)
        self.frame = np.zeros(count, np.int64)
        self.state = np.zeros(count, np.uint8)
        paths = _module_paths(names.modules)
        places: dict[str, int] = {}
        for site, (module, frame, state) in names.sites.items():
            if module:
                path = paths.get(module, f"module {module}, lost")
                self.module[site] = places.setdefault(path, len(places))
            self.frame[site] = frame
            self.state[site] = state if state in _STATES else StackState.TAKEN
        self.module_names = tuple(places)
        self._stacks: dict[int, tuple[Frame, ...]] = {}
        self._short_names: dict[str, str] | None = None
        for column in (self.module, self.frame, self.state):
            column.flags.writeable = False

    def __len__(self) -> int:
        """Return how many sites there are, without number 0."""
        return len(self.module) - 1

    @property
    def has_modules(self) -> bool:
        """Whether any event can carry a module."""
        return bool(self.module_names)

    @property
    def has_stacks(self) -> bool:
        """Whether any event can carry a call site."""
        return bool(self.frame.any())

    @property
    def relative_paths(self) -> dict[str, int]:
        """Module paths without the outermost module's name -> index into `module_names`."""
        whole = _module_paths(self._names.modules)
        places = {name: i for i, name in enumerate(self.module_names)}
        return {
            path: places[whole[id]]
            for id, (root, path) in reversed([*self._names.modules.items()])
            if root and whole[id] in places
        }

    @property
    def module_parts(self) -> tuple[tuple[str, ...], ...]:
        """The names on the way to each of `module_names`, the outermost module's first."""
        parts = {name: _split(name) for name in self.module_names}
        paths = _module_paths(self._names.modules)
        for id, (root, path) in self._names.modules.items():
            if root and paths[id] in parts:
                _, outermost = self._names.modules.get(root, (0, f"module {root}, lost"))
                parts[paths[id]] = (outermost, *path.split("."))
        return tuple(parts.values())

    def clipped(self, site: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """Return ``site`` as indices into the arrays; numbers whose row was lost become 0."""
        return np.where(site < len(self.module), site, 0).astype(np.int64)

    def stack(self, site: int) -> tuple[Frame, ...]:
        """Return the frames of a site, innermost first; empty when it has none."""
        return self._frames(int(self.frame[site])) if site < len(self.frame) else ()

    def call_site(self, site: int) -> Frame | None:
        """Return the innermost frame outside of PyTorch; the innermost when all are PyTorch's."""
        return next(iter(self.own_frames(site)), None)

    def own_frames(self, site: int) -> tuple[Frame, ...]:
        """Return the frames outside of PyTorch and of `gpumemtrace run`, innermost first.

        Of a stack with no others the innermost of Python alone; without Python that of the
        backward of an operator, else the innermost.
        """
        stack = self.stack(site)
        python = tuple(f for f in stack if not f.is_native)
        backward = tuple(f for f in stack if f.function.startswith(_BACKWARD))
        own = tuple(f for f in python if not (f.is_torch or f.is_launcher))
        return own or python[:1] or backward[:1] or stack[:1]

    def told(self, frame: Frame) -> str:
        """Return a frame as text, with as much of its path as tells its file from the others."""
        if self._short_names is None:
            self._short_names = _short_names({file for file, _, _ in self._names.codes.values()})
        return frame.told(self._short_names.get(frame.file, frame.file))

    def _frames(self, frame: int) -> tuple[Frame, ...]:
        found = self._stacks.get(frame)
        if found is None:
            frames: list[Frame] = []
            outer = frame
            while outer and len(frames) < _MOST_FRAMES:
                outer, code, line = self._names.frames.get(outer, (0, 0, 0))
                file, function, _ = self._names.codes.get(code, ("lost", "lost", 0))
                frames.append(Frame(file, line, function))
            found = self._stacks[frame] = tuple(frames)
        return found


def _module_paths(modules: Mapping[int, tuple[int, str]]) -> dict[int, str]:
    """Return the whole path of each module by its id."""
    roots = {root for root, _ in modules.values() if root}

    def path_of(id: int) -> str:
        root, path = modules[id]
        if not root or len(roots) < 2:
            return path
        return f"{modules[root][1] if root in modules else f'module {root}, lost'}.{path}"

    return {id: path_of(id) for id in modules}


def _split(path: str) -> tuple[str, ...]:
    """Return the names in a path; a compiled function's has dots that are no steps."""
    return (path,) if path.endswith(")") else tuple(path.split("."))


def _short_names(files: set[str]) -> dict[str, str]:
    """Return for each file the last parts of its path, as few as no other file has."""
    alike: dict[str, list[str]] = {}
    for file in files:
        alike.setdefault(PurePath(file).name, []).append(file)
    found: dict[str, str] = {}
    for name, group in alike.items():
        parts = [PurePath(file).parts for file in group]
        depth, short = 1, [name] * len(group)
        while len(set(short)) < len(group) and depth < max(map(len, parts)):
            depth += 1
            short = [str(PurePath(*own[-depth:])) for own in parts]
        found |= dict(zip(group, short, strict=True))
    return found
