"""The rules of categories as definitions over whole columns: slow, and with no state to get wrong.

What blocks from before training are, `resident_blocks.cc` judges by sizes and order; here they are
only told from the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NAMES = ("init", "data", "forward", "backward", "optimizer", "zero_grad", "eval", "mine")
RESIDENT = "resident"


@dataclass(frozen=True)
class Block:
    birth: int
    death: int  # event; count of events if alive at the end
    size: int
    is_dead: bool


class SlowCategories:
    """Events of `Trace.from_events` with phases `NAMES`."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.count = len(columns["kind"])
        self.phase = [NAMES[i] if i >= 0 else "" for i in columns["phase"].tolist()]
        self.step = columns["step"].tolist()
        self.thread = columns["thread"].tolist()
        self.blocks = self._pair(columns)

    def _pair(self, columns: dict[str, np.ndarray]) -> list[Block]:
        names = ("kind", "address", "device", "size_bytes")
        rows = list(zip(*(columns[name].tolist() for name in names), strict=True))
        blocks = []
        for birth, (kind, address, device, size) in enumerate(rows):
            if kind != 1:
                continue
            later = (e for e in range(birth + 1, self.count) if rows[e][1:3] == (address, device))
            death = next(later, self.count)
            blocks.append(Block(birth, death, size, death < self.count))
        return blocks

    def begins(self, event: int, phase: str) -> bool:
        before = self.phase[event - 1] if event else ""
        return self.phase[event] == phase != before

    def entries(self, event: int, phase: str) -> int:
        return sum(self.begins(e, phase) for e in range(min(event + 1, self.count)))

    def turns(self, event: int) -> int:
        """Steps of the optimizer until ``event``; until its first one, steps of the trace."""
        begun = [e for e in range(self.count) if self.begins(e, "optimizer")]
        end = min([event, *begun[:1]])
        marks = sum(
            self.step[e] != (self.step[e - 1] if e else 0) for e in range(min(end + 1, self.count))
        )
        last = event >= self.count and not begun and self.step[-1] >= 0  # the mark at the very end
        return marks + last + sum(e <= event for e in begun)

    def alive(self, event: int) -> list[Block]:
        """The blocks before ``event``."""
        return [b for b in self.blocks if b.birth < event <= b.death]

    def resident_sizes(self, event: int) -> set[int]:
        """Sizes of what was there from outside of training when it was last looked."""
        sizes: set[int] = set()
        looked = -1
        for e in range(min(event + 1, self.count)):
            if not self.begins(e, "backward"):
                continue
            born = [b for b in self.blocks if looked <= b.birth < e and self._is_news(b)]
            if born:
                setup = ("", "mine", "init", "data")
                sizes = {b.size for b in self.alive(e) if self.phase[b.birth] in setup}
                looked = e
        return sizes

    def _is_news(self, block: Block) -> bool:
        phase = self.phase[block.birth]
        return phase in ("", "mine", "init") or (phase == "data" and self.is_early(block))

    def is_early(self, block: Block) -> bool:
        return self.entries(block.birth, "backward") == 0

    def is_autograd(self, block: Block) -> bool:
        in_backward = self.phase[block.birth] == "backward"
        return in_backward and self.thread[block.birth] != self.thread[0]

    def has_gradient_size(self, block: Block) -> bool:
        until = range(min(block.death + 1, self.count))
        seen = any(self.is_autograd(b) for b in self.blocks if b.birth in until)
        if seen and not self.is_autograd(block):
            return False
        return block.size in self.resident_sizes(block.death)

    def freed_gradients(self, before: int) -> set[int]:
        freed = set()
        for block in self.blocks:
            turns = self.turns(block.death) - self.turns(block.birth)
            if block.death < before and turns < 2 and self.judge(block) == "gradient":
                freed.add(block.size)
        return freed

    def judge(self, block: Block) -> str:
        birth = self.phase[block.birth]
        birth = "" if birth == "mine" else birth
        death = self.phase[block.death] if block.is_dead else None
        death = "" if death == "mine" else death
        turns = self.turns(block.death) - self.turns(block.birth)
        is_same_stay = self._entries_of(block.birth, birth) == self._entries_of(block.death, birth)
        if block.is_dead and death == birth and is_same_stay and turns == 0:
            return "temporary" if birth else "unknown"
        is_short = block.is_dead and turns < 2
        if birth in ("forward", "eval"):
            if turns < 2 or self.turns(block.birth) > 0:
                return "activation"
            is_wanted = block.size in self.freed_gradients(block.death)
            return RESIDENT if is_wanted else "unknown"
        if birth == "backward":
            if not block.is_dead and turns > 8 and block.size in self.freed_gradients(self.count):
                return "unknown"
            if self.has_gradient_size(block) or (is_short and death == "zero_grad"):
                return "gradient"
            return "temporary" if is_short or (is_same_stay and turns == 0) else "unknown"
        if birth == "optimizer":
            if is_short:
                return "temporary" if turns == 0 else "optimizer_state"
            is_first = self.turns(self.count) <= 1
            is_state = is_first and block.size in self.resident_sizes(self.count)
            is_open = not block.is_dead and is_same_stay and turns == 0
            return "temporary" if is_open and not is_state else "optimizer_state"
        if birth == "data":
            return "input" if is_short or not self.is_early(block) else RESIDENT
        if birth == "zero_grad":
            return "unknown"
        if not is_short:
            return RESIDENT
        if not self.is_early(block):
            return "unknown"
        if self.entries(block.death, "backward") > 0 or turns > 0:
            return RESIDENT
        return "temporary"

    def _entries_of(self, event: int, phase: str) -> int:
        if phase:
            return self.entries(event, phase)
        return self.entries(event, "mine")  # leaving all phases enters none
