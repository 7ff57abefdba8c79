"""What a shared object imports, exports and needs: a reader for 64-bit little-endian ELF.

Enough of the format for the stub generator: a build needs no binutils and no import of torch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ElfSymbols", "read_symbols"]

_DYNAMIC_SECTION = 6  # SHT_DYNAMIC
_SYMBOL_SECTION = 11  # SHT_DYNSYM
_NEEDED_TAG = 1  # DT_NEEDED


@dataclass(frozen=True)
class ElfSymbols:
    """Names from one object's dynamic section."""

    imported: frozenset[str]
    exported: frozenset[str]
    needed: tuple[str, ...]


@dataclass(frozen=True)
class _Section:
    kind: int
    data: bytes
    link: int  # index of the string table that goes with it


def _read_sections(path: Path) -> dict[int, _Section]:
    """The dynamic sections and their string tables, by index; code is not read."""
    with path.open("rb") as file:
        header = file.read(64)
        if header[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
        (table_offset,) = struct.unpack_from("<Q", header, 40)
        entry_size, count = struct.unpack_from("<HH", header, 58)
        file.seek(table_offset)
        table = file.read(entry_size * count)
        raw = [struct.unpack_from("<IIQQQQIIQQ", table, entry_size * i) for i in range(count)]
        wanted = {i for i, s in enumerate(raw) if s[1] in (_DYNAMIC_SECTION, _SYMBOL_SECTION)}
        wanted |= {raw[i][6] for i in wanted}
        sections = {}
        for index in sorted(wanted):
            _, kind, _, _, offset, size, link, _, _, _ = raw[index]
            file.seek(offset)
            sections[index] = _Section(kind, file.read(size), link)
        return sections


def _string_at(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def read_symbols(path: Path) -> ElfSymbols:
    """Read ``path``; raises ``ValueError`` when it is not such an ELF file."""
    sections = _read_sections(path)
    imported: set[str] = set()
    exported: set[str] = set()
    needed: list[str] = []
    for section in sections.values():
        if section.kind == _SYMBOL_SECTION:
            strings = sections[section.link].data
            for name, _, _, defined_in, _, _ in struct.iter_unpack("<IBBHQQ", section.data):
                if name:
                    (exported if defined_in else imported).add(_string_at(strings, name))
        elif section.kind == _DYNAMIC_SECTION:
            strings = sections[section.link].data
            needed += [
                _string_at(strings, value)
                for tag, value in struct.iter_unpack("<QQ", section.data)
                if tag == _NEEDED_TAG
            ]
    return ElfSymbols(frozenset(imported), frozenset(exported), tuple(needed))
