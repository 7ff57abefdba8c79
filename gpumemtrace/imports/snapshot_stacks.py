"""The call stacks of a snapshot, checked, each once; and as the tables of names of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpumemtrace.schema import StackState
from gpumemtrace.trace_file import Names

__all__ = ["MODULE_FILE", "STEP_FILE", "Stack", "Stacks", "WrongShapeError", "names_of"]

MODULE_FILE, STEP_FILE = "module", "step"
"""What stands for the file in frames of our own export, which are no lines of a program."""

_MOST_FRAMES = 256  # further out they are left out


class WrongShapeError(Exception):
    """What is wrong, and where in the snapshot."""


class Stack(NamedTuple):
    """A module (empty: none) and the frames, innermost first: file, line, function."""

    module: str
    frames: tuple[tuple[str, int, str], ...]


class Stacks:
    """Numbers the stacks of a snapshot, from 1; equal ones have one number."""

    def __init__(self, *, is_own: bool) -> None:
        """``is_own``: `gpumemtrace export` wrote the snapshot."""
        self._is_own = is_own
        self._numbers: dict[Stack, int] = {}
        # PyTorch gives equal stacks the same list. Kept here, a list keeps its id.
        self._of_list: dict[int, tuple[list[Any], int]] = {}

    @property
    def known(self) -> tuple[Stack, ...]:
        """All of them, number 1 first."""
        return tuple(self._numbers)

    def number_of(self, owner: Mapping[str, Any], place: str) -> int:
        """Return the number of the stack in ``owner["frames"]``; 0 without one."""
        frames = owner.get("frames")
        if not frames:
            return 0
        if type(frames) is not list:
            raise WrongShapeError(f"{place}.frames is a {type(frames).__name__}, not a list")
        seen = self._of_list.get(id(frames))
        if seen is None:
            stack = self._checked(frames[:_MOST_FRAMES], place)
            number = 0
            if stack.module or stack.frames:
                number = self._numbers.setdefault(stack, len(self._numbers) + 1)
            seen = self._of_list[id(frames)] = (frames, number)
        return seen[1]

    def _checked(self, frames: Sequence[Any], place: str) -> Stack:
        module, found = "", []
        for i, frame in enumerate(frames):
            if type(frame) is not dict:
                raise WrongShapeError(
                    f"{place}.frames[{i}] is a {type(frame).__name__}, not a dict"
                )
            file, line, name = frame.get("filename"), frame.get("line"), frame.get("name")
            if type(file) is not str or type(name) is not str or type(line) is not int:
                raise WrongShapeError(f"{place}.frames[{i}] has no filename, line and name")
            if self._is_own and file == STEP_FILE:
                continue
            if self._is_own and file == MODULE_FILE:
                module = name
            else:
                found.append((file, line if 0 <= line < 1 << 31 else 0, name))
        return Stack(module, tuple(found))


def names_of(stacks: Sequence[Stack]) -> Names:
    """Return the tables in which site 1 is the first of ``stacks``, and so on."""
    modules: dict[str, int] = {}
    codes: dict[tuple[str, str, int], int] = {}
    frames: dict[tuple[int, int, int], int] = {}
    sites = {}
    for site, stack in enumerate(stacks, start=1):
        inner = 0
        for file, line, function in reversed(stack.frames):
            code = codes.setdefault((file, function, 0), len(codes) + 1)
            inner = frames.setdefault((inner, code, line), len(frames) + 1)
        module = modules.setdefault(stack.module, len(modules) + 1) if stack.module else 0
        sites[site] = (module, inner, StackState.TAKEN if inner else StackState.OFF)
    return Names(
        modules={id: (0, path) for path, id in modules.items()},
        codes={id: code for code, id in codes.items()},
        frames={id: frame for frame, id in frames.items()},
        sites=sites,
    )
