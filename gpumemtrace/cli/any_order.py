"""Options and files of a command in whatever order they are typed.

argparse gives all files that it finds before an option to the arguments that it has by then, so
that it does not know what to do with one that comes later: ``budget run.gmt --json rules.toml``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

__all__ = ["AnyOrderParser"]


class AnyOrderParser(argparse.ArgumentParser):
    """A parser that takes options first, wherever they stand.

    A command that passes the rest of its line on (``run SCRIPT …``) keeps its order, and so does a
    line that can't be told for sure: then argparse says what is wrong with it.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """See `argparse.ArgumentParser.parse_known_args`."""
        ordered = None if args is None else self._options_first(list(args))
        found: tuple[Any, list[str]] = super().parse_known_args(ordered, namespace)
        return found

    def _options_first(self, args: list[str]) -> list[str]:
        if any(action.nargs == argparse.REMAINDER for action in self._actions):
            return args
        options, files, at = [], [], 0
        while at < len(args):
            name, has_value, _ = args[at].partition("=")
            if args[at] == "--":
                break
            if args[at] == "-" or not args[at].startswith("-"):
                files.append(args[at])
                at += 1
                continue
            action = self._option_string_actions.get(name)
            if action is None or action.nargs not in (None, 0):
                return args
            count = 1 if has_value or action.nargs == 0 else 2
            options += args[at : at + count]
            at += count
        return [*options, *files, *args[at:]]
