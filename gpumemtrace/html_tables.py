"""Small tables for notebooks: what `_repr_html_` of traces and results returns.

Every text is escaped: names of scripts and phases come from the trace.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

__all__ = ["MOST_ROWS", "html_facts", "html_table"]

# A notebook shows the beginning; the result itself has the rest.
MOST_ROWS = 12


def html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table: the first column is text, the others are figures; a long one is cut."""
    shown = rows[:MOST_ROWS]
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in shown)
    left = len(rows) - len(shown)
    more = f"<p>… showing {len(shown)} of {len(rows):,} rows</p>" if left else ""
    return (
        f'<table><caption style="text-align:left">{html.escape(title)}</caption>'
        f"<thead><tr>{_cells(columns, 'th')}</tr></thead><tbody>{body}</tbody></table>{more}"
    )


def html_facts(title: str, facts: Sequence[tuple[str, str]]) -> str:
    """Return names and texts, one below the other."""
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(text)}</td></tr>'
        for name, text in facts
    )
    return (
        f'<table><caption style="text-align:left">{html.escape(title)}</caption>'
        f"<tbody>{rows}</tbody></table>"
    )


def _cells(texts: Sequence[str], tag: str) -> str:
    return "".join(
        f'<{tag} style="text-align:{"left" if i == 0 else "right"}">{html.escape(text)}</{tag}>'
        for i, text in enumerate(texts)
    )
