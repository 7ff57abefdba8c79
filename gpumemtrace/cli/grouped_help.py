"""``gpumemtrace --help``: the commands in groups, on one screen; and the help of each command."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from gpumemtrace.cli.any_order import AnyOrderParser

__all__ = ["CommandParser", "GroupedParser"]


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """A paragraph without line breaks is wrapped; text with its own (examples) stands as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text.strip():
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


class CommandParser(AnyOrderParser):
    """The parser of one command."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"formatter_class": _Formatter} | options))


class GroupedParser(argparse.ArgumentParser):
    """A parser whose help lists its subcommands under the titles of ``groups``."""

    groups: Mapping[str, Sequence[str]]
    """Title -> names of commands, in the order of the help."""

    def format_help(self) -> str:
        """Return usage, description, the groups, the options, and the epilog."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        listed = {
            entry.dest: entry
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for entry in action._get_subactions()
        }
        for title, names in self.groups.items():
            formatter.start_section(title)
            formatter.add_arguments([listed[name] for name in names])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments(self._get_optional_actions())
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()
