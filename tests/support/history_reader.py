"""Events of codec 2, read as docs/file-format.md says and nothing else; see format_reader.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

WIDE = 1 << 64
REACH = 65536
ALLOC, FREE = 1, 2
COPY, FOLLOW, EDIT, JUMP, ADD, ASIDE = range(6)


class Instructions(Protocol):
    """What `format_reader.Bytes` offers."""

    def take(self, size: int) -> bytes: ...
    def rest(self) -> bytes: ...
    def varint(self) -> int: ...
    def difference(self) -> int: ...


@dataclass(frozen=True)
class Past:
    """An event in the history."""

    fields: dict[str, int]
    address_reference: int = 0
    size_reference: int = 0
    allocated: int = 0
    gap: int = 0
    spread: int = 0


NOTHING = dict.fromkeys(
    ("kind", "address", "size", "stream", "extra", "thread", "site", "flags", "device"), 0
)


class Bits:
    """Rice codes, read front to back."""

    def __init__(self, data: bytes) -> None:
        self.number = int.from_bytes(data, "little")
        self.left = 8 * len(data)

    def take(self, count: int) -> int:
        assert count <= self.left
        self.left -= count
        taken = self.number & ((1 << count) - 1)
        self.number >>= count
        return taken

    def rice(self, k: int) -> int:
        zeros = 0
        while self.take(1) == 0:
            zeros += 1
        if zeros < 16:
            return zeros << k | self.take(k)
        assert zeros == 16
        return self.take(self.take(6) + 1)

    def check_end(self) -> None:
        assert self.left < 8 and self.number == 0


def signed(value: int) -> int:
    value %= WIDE
    return value - WIDE if value >> 63 else value


def rounded(size: int) -> int:
    return -(-size // 512) * 512


def low_bits(spread: int) -> int:
    return min((spread * 3 // 32).bit_length(), 32)


def learned(gap: int, spread: int, error: int) -> tuple[int, int]:
    size = error if error >= 0 else -error - 1
    kept = min(size, spread // 4 + 1)
    step = kept // 2 if error >= 0 else -(kept // 2)
    return (gap + step) % WIDE, spread - spread // 4 + min(16 * kept, 1 << 31) // 4


class HistoryReader:
    """A chain of chunks, one after the other; a keyframe is read by a new one."""

    def __init__(self) -> None:
        self.history: list[Past] = []
        self.distance = 0
        self.told: dict[int, dict[str, int]] = {}
        self.last_time = 0
        self.last_history_time = 0
        self.spread_alone = 0
        self.operations: set[int] = set()  # that occurred

    def read(self, data: Any, count: int, resolution: int) -> list[dict[str, int]]:
        """Events of one chunk; ``data`` is a `format_reader.Bytes` of its payload."""
        instructions = type(data)(data.take(data.varint()))
        self.times = Bits(data.rest())
        events: list[dict[str, int]] = []
        while len(events) < count:
            byte = instructions.take(1)[0]
            operation, argument = byte & 7, byte >> 3
            self.operations.add(operation)
            if operation in (COPY, FOLLOW):
                number = argument + 1 if argument < 31 else 32 + instructions.varint()
                one = self.copy if operation == COPY else self.follow
                events += [one() for _ in range(number)]
            elif operation == EDIT:
                events.append(self.edit(instructions, argument))
            elif operation == JUMP:
                assert argument == 0
                self.distance = instructions.varint()
                self.at(self.distance)
            else:
                assert operation in (ADD, ASIDE)
                events.append(self.add(instructions, argument, aside=operation == ASIDE))
        assert len(events) == count and instructions.rest() == b""
        self.times.check_end()
        return [event | {"time_ns": event["time_ns"] * resolution} for event in events]

    def at(self, distance: int) -> Past:
        assert 1 <= distance <= len(self.history) and distance < REACH
        return self.history[-distance]

    def allocated(self) -> int:
        return self.history[-1].allocated if self.history else 0

    def copy(self) -> dict[str, int]:
        source = self.at(self.distance)
        return self.enter_timed(source, source)

    def follow(self) -> dict[str, int]:
        source = self.at(self.distance)
        past = self.foreseen(source)
        past = replace(past, fields=past.fields | {"extra": self.foreseen_extra(past.fields)})
        return self.enter_timed(self.with_allocated(past), source)

    def edit(self, data: Instructions, mask: int) -> dict[str, int]:
        source = self.at(self.distance)
        past = self.with_fields(data, mask, self.foreseen(source))
        return self.enter_timed(self.with_allocated(past), source)

    def add(self, data: Instructions, mask: int, *, aside: bool) -> dict[str, int]:
        kind = data.varint()
        assert kind < 1 << 16
        told = self.told.get(kind % 64, NOTHING) | {"kind": kind}
        past = self.with_fields(data, mask, Past(told))
        self.told[kind % 64] = past.fields
        folded = self.times.rice(low_bits(self.spread_alone))
        error = -(folded + 1) // 2 if folded % 2 else folded // 2
        self.spread_alone = learned(0, self.spread_alone, error)[1]
        self.last_time = (self.last_time + error) % WIDE
        if not aside:
            gap = signed(self.last_time - self.last_history_time)
            size = gap if gap >= 0 else -gap - 1
            self.last_history_time = self.last_time
            past = replace(past, gap=gap % WIDE, spread=min(4 * size, 1 << 31))
            self.history.append(self.with_allocated(past))
            if self.distance:
                self.distance = (self.distance + 1) % REACH
        return past.fields | {"time_ns": signed(self.last_time)}

    def foreseen(self, source: Past) -> Past:
        """What follows the source, but for its extra, which depends on the size."""
        fields = dict(source.fields)
        if source.address_reference:
            fields["address"] = self.at(source.address_reference).fields["address"]
        if source.size_reference:
            fields["size"] = self.at(source.size_reference).fields["size"]
        return replace(source, fields=fields)

    def near(self, fields: dict[str, int]) -> int:
        if fields["kind"] != ALLOC:
            return fields["extra"]
        return (self.allocated() + rounded(fields["size"])) % WIDE

    def foreseen_extra(self, fields: dict[str, int]) -> int:
        return self.near(fields) if fields["extra"] else 0

    def with_fields(self, data: Instructions, mask: int, past: Past) -> Past:
        fields = dict(past.fields)
        second = data.take(1)[0] if mask & 16 else 0
        assert second < 16
        references = {"address": past.address_reference, "size": past.size_reference}
        for bit, name, unit in ((1, "address", 512), (2, "size", 1)):
            if mask & bit:
                fields[name], references[name] = self.place(data, name, fields[name], unit)
        if not mask & 4:
            fields["extra"] = self.foreseen_extra(fields)
        elif (value := data.varint()) == 1:
            fields["extra"] = (fields["extra"] + data.difference()) % WIDE
        else:
            fields["extra"] = value and (self.near(fields) + unzigzag(value - 2)) % WIDE
        told = [("stream", 64, mask & 8), ("thread", 32, second & 1), ("site", 32, second & 2)]
        for name, bits, is_told in [*told, ("flags", 32, second & 4)]:
            if is_told:
                fields[name] = (fields[name] + data.difference()) % WIDE
                assert fields[name] < 1 << bits
        if second & 8:
            fields["device"] = signed(fields["device"] + data.difference())
            assert -(1 << 15) <= fields["device"] < 1 << 15
        return replace(
            past,
            fields=fields,
            address_reference=references["address"],
            size_reference=references["size"],
        )

    def place(self, data: Instructions, name: str, base: int, unit: int) -> tuple[int, int]:
        """A value and its new reference."""
        value = data.varint()
        if value % 2:
            return (base + unit * unzigzag(value >> 1)) % WIDE, 0
        if value == 0:
            return (base + data.difference()) % WIDE, 0
        return self.at(value // 2).fields[name], value // 2

    def with_allocated(self, past: Past) -> Past:
        """The event that comes next in the history, its allocated said."""
        allocated = self.allocated()
        fields = past.fields
        if fields["kind"] == ALLOC:
            allocated = fields["extra"] or allocated + rounded(fields["size"])
        elif fields["kind"] == FREE and past.address_reference:
            allocated -= rounded(self.at(past.address_reference).fields["size"])
        return replace(past, allocated=allocated % WIDE)

    def enter_timed(self, past: Past, source: Past) -> dict[str, int]:
        folded = self.times.rice(low_bits(source.spread))
        error = -(folded + 1) // 2 if folded % 2 else folded // 2
        self.last_time = (self.last_history_time + source.gap + error) % WIDE
        self.last_history_time = self.last_time
        gap, spread = learned(source.gap, source.spread, error)
        self.history.append(replace(past, gap=gap, spread=spread))
        return past.fields | {"time_ns": signed(self.last_time)}


def unzigzag(folded: int) -> int:
    return -(folded + 1) // 2 if folded % 2 else folded // 2
