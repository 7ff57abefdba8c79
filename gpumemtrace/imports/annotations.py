"""From the ranges that a program named to the steps and phases of a trace.

`torch.profiler`'s own ``ProfilerStep#7`` and ranges called ``step 7`` or ``iteration 7`` are steps.
PyTorch's ``Optimizer.step#AdamW.step`` is the phase ``optimizer``, and where nothing else tells of
steps and there is one optimizer, its end is the end of a step. Any other name is a phase.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpumemtrace.imports.snapshot import Annotation
from gpumemtrace.schema import Kind, PhaseFlags, StepFlags

__all__ = ["PhaseTracker"]

_STEP = re.compile(
    r"(?:ProfilerStep#|(?:train[a-z]*[ _-]?)?(?:step|iter|iteration)[ _#:-]*)(\d{1,9})", re.I
)
_RENAMED = (("Optimizer.step#", "optimizer"), ("Optimizer.zero_grad#", "zero_grad"))
_MOST_NAMES = 256  # more are names with a number in them: marks, not phases

_Mark = tuple[Kind, int, int]
"""Kind, ``size_bytes`` (number of the step, id of the path or text), ``flags``."""


class PhaseTracker:
    """Which phases are open, and what marks tell of a change."""

    def __init__(self, annotations: Iterable[Annotation]) -> None:
        """Take all annotations beforehand, to know what their names stand for."""
        self.paths: dict[int, tuple[int, str]] = {}
        """Path id -> (id of the path around it, 0 = none; name)."""
        self.texts: dict[int, str] = {}
        """Text id -> text, of marks."""
        self._path_ids: dict[tuple[int, str], int] = {}
        self._text_ids: dict[str, int] = {}
        names = dict.fromkeys(a.name for a in annotations if not a.is_mark)
        self._phase_of: dict[str, str] = {}
        for name in [name for name in names if not _STEP.fullmatch(name)][:_MOST_NAMES]:
            renamed = [to for prefix, to in _RENAMED if name.startswith(prefix)]
            self._phase_of[name] = renamed[0] if renamed else name
        optimizers = [name for name in names if name.startswith(_RENAMED[0][0])]
        has_steps = any(_STEP.fullmatch(name) for name in names)
        self._step_ends_with = optimizers[0] if len(optimizers) == 1 and not has_steps else None
        self._open: list[str] = []
        self._told_path = 0
        # Before the first step that is told of, unless steps are counted by the optimizer's.
        self._step = None if self._step_ends_with is None else 0

    def annotation(self, annotation: Annotation) -> Iterator[_Mark]:
        """Yield the marks that stand for the beginning or the end of a range."""
        name, is_start = annotation.name, annotation.is_start
        step = _STEP.fullmatch(name)
        if annotation.is_mark or (name not in self._phase_of and not step):
            if is_start:
                yield Kind.MARK, self.text_id(name), 0
        elif step:
            yield from self._to_step(int(step[1]) + (not is_start))
        else:
            phase = self._phase_of[name]
            if is_start:
                self._open.append(phase)
            elif phase in self._open:  # the last one of that name
                del self._open[len(self._open) - 1 - self._open[::-1].index(phase)]
            yield from self.metadata("")
            if name == self._step_ends_with and not is_start:
                yield from self._to_step((self._step or 0) + 1)

    def metadata(self, metadata: str) -> Iterator[_Mark]:
        """Yield the mark, if any, with which an entry of this ``user_metadata`` is in its phase."""
        path = 0
        names = self._open
        if metadata and names[-1:] != [metadata]:
            names = [*names, metadata]
        for name in names:
            path = self._path_id(path, name)
        if path != self._told_path:
            is_inside = self.paths[path][0] == self._told_path if path else False
            self._told_path = path
            yield Kind.PHASE, path, PhaseFlags.ENTERED if is_inside else 0

    def text_id(self, text: str) -> int:
        """Return the id for a text of a mark or tag."""
        id = self._text_ids.setdefault(text, len(self._text_ids) + 1)
        self.texts[id] = text
        return id

    def _path_id(self, parent: int, name: str) -> int:
        id = self._path_ids.get((parent, name))
        if id is None:
            id = self._path_ids[parent, name] = len(self._path_ids) + 1
            self.paths[id] = (parent, name)
        return id

    def _to_step(self, number: int) -> Iterator[_Mark]:
        if number == self._step:
            return
        # The first only says where counting begins.
        is_set = self._step is None or number < self._step
        self._step = number
        yield Kind.STEP, number, StepFlags.SET if is_set else 0
