"""A trace whose texts tell no paths of folders, and not the host."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpumemtrace.confidential import (
    file_without_folders,
    record_without_paths,
    text_without_folders,
)
from gpumemtrace.records import Records, RecordSource
from gpumemtrace.trace_file import Names, Problem

__all__ = ["ConfidentialSource"]


class ConfidentialSource:
    """The records of another source, with other texts; see `RecordSource`."""

    def __init__(self, source: RecordSource) -> None:
        """Read from ``source``."""
        self._source = source
        self.path: str | None = source.path
        self.format_version: str = source.format_version
        self.file_bytes: int = source.file_bytes
        self.names = _names_without_folders(source.names)
        self.run_record: Mapping[str, Any] = record_without_paths(source.run_record)
        self.footer: Mapping[str, Any] = record_without_paths(source.footer)

    @property
    def complete(self) -> bool:
        """Whether the recording was closed in an orderly way."""
        return self._source.complete

    @property
    def problems(self) -> Sequence[Problem]:
        """What is wrong, as far as it has been read."""
        return self._source.problems

    @property
    def record_count(self) -> int:
        """How many records there are; some may turn out to be damaged."""
        return self._source.record_count

    @property
    def time_span_ns(self) -> tuple[int, int]:
        """The times between which the records lie."""
        return self._source.time_span_ns

    def batches(self) -> Generator[Records, None, None]:
        """Yield the records of the other source, which hold no texts."""
        for piece in self.pieces():
            yield from piece

    def pieces(self, first: int = 0) -> Generator[Sequence[Records], None, None]:
        """Yield the same from piece ``first`` on."""
        yield from self._source.pieces(first)


def _names_without_folders(names: Names) -> Names:
    text = text_without_folders
    return replace(
        names,
        phases={i: (parent, text(name)) for i, (parent, name) in names.phases.items()},
        strings={i: text(string) for i, string in names.strings.items()},
        threads={i: replace(t, name=text(t.name)) for i, t in names.threads.items()},
        modules={i: (root, text(name)) for i, (root, name) in names.modules.items()},
        codes={
            i: (file_without_folders(file), text(function), line)
            for i, (file, function, line) in names.codes.items()
        },
    )
