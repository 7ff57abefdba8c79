"""A second reader of trace files, written from docs/file-format.md and nothing else.

Slow and strict: whole, undamaged files only; anything odd is an AssertionError. It shares no code
with the package, so a mistake that writer and reader have in common shows here.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from history_reader import HistoryReader

FIELDS = {"address": 64, "size": 64, "stream": 64, "extra": 64}
FIELDS |= {"thread": 32, "site": 32, "flags": 32, "device": 16}
METADATA, NAMES, EVENTS, FOOTER = 1, 2, 3, 4


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


class Bytes:
    """Bytes read front to back."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.encodings: set[int] = set()  # of the columns read

    def take(self, size: int) -> bytes:
        taken = self.data[self.at : self.at + size]
        assert len(taken) == size
        self.at += size
        return taken

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.at)

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        assert byte < 0x80 and value < 1 << 64
        return value

    def difference(self) -> int:
        folded = self.varint()
        return -(folded + 1) // 2 if folded % 2 else folded // 2

    def deltas(self, count: int) -> list[int]:
        values = []
        last = 0
        for _ in range(count):
            last = (last + self.difference()) % (1 << 64)
            values.append(last)
        return values

    def column(self, count: int) -> list[int]:
        encoding = self.take(1)[0]
        self.encodings.add(encoding)
        if encoding == 0:
            values: list[int] = []
            last = 0
            while len(values) < count:
                last = (last + self.difference()) % (1 << 64)
                values += [last] * (self.varint() + 1)
            assert len(values) == count
            return values
        if encoding == 1:
            return self.deltas(count)
        assert encoding == 2
        size = self.varint()
        assert 1 <= size <= 4096
        entries = self.deltas(size)
        bits = (size - 1).bit_length()
        packed = int.from_bytes(self.take((count * bits + 7) // 8), "little")
        assert packed >> (count * bits) == 0
        return [entries[packed >> (i * bits) & ((1 << bits) - 1)] for i in range(count)]


def decode_events(data: Bytes, count: int, resolution: int) -> list[dict[str, int]]:
    kinds = data.column(count)
    times = data.column(count)
    events = [
        {"kind": kind, "time_ns": signed(time, 64) * resolution}
        for kind, time in zip(kinds, times, strict=True)
    ]
    for kind in sorted(set(kinds)):
        members = [event for event in events if event["kind"] == kind]
        for name, bits in FIELDS.items():
            for event, value in zip(members, data.column(len(members)), strict=True):
                assert value < 1 << bits
                event[name] = value
    for event in events:
        event["device"] = signed(event["device"], 16)
    assert data.rest() == b""
    return events


def chunks_of(data: bytes) -> Iterator[tuple[int, dict[str, int], bytes]]:
    """Offset, header and payload of each chunk up to the footer, then the trailer is checked."""
    names = (
        *("major", "minor", "type", "codec", "flags", "header_bytes", "payload_bytes", "number"),
        *("first_sequence", "count", "first_time", "last_time", "resolution", "trace_id"),
        *("payload_crc", "header_crc"),
    )
    offset = 16
    number = 0
    while True:
        raw = data[offset : offset + 96]
        assert raw[:8] == b"\xffGMTchk\xfe"
        header = dict(zip(names, struct.unpack("<4H2I4Q2q2Q2I", raw[8:]), strict=True))
        assert header["header_bytes"] == 96 and header["number"] == number
        assert header["header_crc"] == crc32c(raw[:92])
        payload = data[offset + 96 : offset + 96 + header["payload_bytes"]]
        assert header["payload_crc"] == crc32c(payload)
        yield offset, header, payload
        end = offset + 96 + len(payload)
        if header["type"] == FOOTER:
            break
        offset = end
        number += 1
    magic, footer_offset, zero, crc = struct.unpack("<8sQ2I", data[end:])
    assert (magic, footer_offset, zero) == (b"\xffGMTend\xfe", offset, 0)
    assert crc == crc32c(data[end : end + 20])


def read_trace(path: Path) -> dict[str, Any]:
    """Metadata, names and footer as parsed JSON, events as a list of dicts, in order.

    Also which column ``encodings`` and which ``operations`` of codec 2 occurred.
    """
    file = path.read_bytes()
    assert file[:10] == b"\x89GMT\r\n\x1a\n" + struct.pack("<H", 1)
    assert struct.unpack("<I", file[12:16])[0] == crc32c(file[:12])
    assert file[10:12] in (b"\0\0", b"\1\0", b"\2\0")
    trace: dict[str, Any] = {"metadata": [], "names": [], "events": [], "encodings": set()}
    trace["operations"] = set()
    history = HistoryReader()
    index = []
    for _offset, header, payload in chunks_of(file):
        assert header["first_sequence"] == len(trace["events"])
        if header["type"] == METADATA:
            trace["metadata"].append(json.loads(payload))
        elif header["type"] == NAMES:
            trace["names"].append(json.loads(payload))
        elif header["type"] == EVENTS:
            data = Bytes(payload)
            if header["codec"] == 1:
                assert header["flags"] == 1
                events = decode_events(data, header["count"], header["resolution"])
                trace["encodings"] |= data.encodings
            else:
                assert header["codec"] == 2 and header["flags"] in (0, 1)
                if header["flags"] == 1:
                    history = HistoryReader()
                events = history.read(data, header["count"], header["resolution"])
                trace["operations"] |= history.operations
            assert min(event["time_ns"] for event in events) == header["first_time"]
            assert max(event["time_ns"] for event in events) == header["last_time"]
            trace["events"] += events
        else:
            check_index(Bytes(payload), index, trace)
            assert header["count"] == len(index)
        index.append(header)
    return trace


def check_index(data: Bytes, headers: list[dict[str, int]], trace: dict[str, Any]) -> None:
    last_time = 0
    for header in headers:
        assert data.varint() == header["type"]
        assert data.varint() == header["codec"]
        assert data.varint() == header["flags"]
        assert data.varint() == header["header_bytes"] + header["payload_bytes"]
        assert data.varint() == header["count"]
        assert (last_time + data.difference() - header["first_time"]) % (1 << 64) == 0
        assert data.varint() == header["last_time"] - header["first_time"]
        last_time = header["last_time"]
    trace["footer"] = json.loads(data.rest())
