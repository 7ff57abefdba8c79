"""What the commands print: tables and hints on stdout, progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["make_console", "make_table"]

_PIPED_WIDTH = 200


def make_console() -> Console:
    """Return a console on stdout: colours only on a terminal (and none under NO_COLOR)."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(
        file=sys.stdout,
        width=None if is_terminal else _PIPED_WIDTH,
        highlight=False,
        markup=False,  # names are the user's: they may hold brackets
        soft_wrap=not is_terminal,
    )


def make_table(console: Console, title: str, columns: Sequence[str]) -> Table:
    """Return a table whose first column is text and whose others are figures.

    On a terminal it has rules; piped it is plain text, aligned by spaces.
    """
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        header_style="dim",
        pad_edge=False,
        padding=(0, 1) if console.is_terminal else (0, 2, 0, 0),
    )
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i == 0 else "right", no_wrap=True)
    return table
