"""A trace whose texts tell no paths of folders, and not the host."""

from __future__ import annotations

from dataclasses import replace

from gpumemtrace.confidential import (
    file_without_folders,
    record_without_paths,
    text_without_folders,
)
from gpumemtrace.records import ForwardingSource, RecordSource
from gpumemtrace.trace_file import Names

__all__ = ["ConfidentialSource"]


class ConfidentialSource(ForwardingSource):
    """The records of another source, which hold no texts, with other texts; see `RecordSource`."""

    def __init__(self, source: RecordSource) -> None:
        """Read from ``source``."""
        super().__init__(source)
        self.names = _names_without_folders(source.names)
        self.run_record = record_without_paths(source.run_record)
        self.footer = record_without_paths(source.footer)


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
