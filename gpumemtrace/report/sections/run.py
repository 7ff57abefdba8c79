"""What ran: the run record, line by line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from gpumemtrace.report.results import Results
from gpumemtrace.units import format_bytes

__all__ = ["NAME", "TITLE", "gather"]

NAME = "run"
TITLE = "What ran"


def gather(results: Results) -> dict[str, Any]:
    """Return the run record as (name, text), nested keys with dots; the file itself first."""
    summary = results.summary
    rows = [
        ("trace", summary.path or "in memory"),
        ("format", summary.format_version),
        *_flat(summary.run_record),
    ]
    return {"rows": [list(row) for row in rows]}


def _flat(record: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in record.items():
        name = f"{prefix}{key}"
        if name == "argv" and isinstance(value, list):
            rows.append((name, shlex.join(map(str, value))))
        elif name == "simulated.approximations":
            continue  # in words at the top of the page
        elif name.endswith("memory_bytes") and isinstance(value, int):
            rows.append((name.removesuffix("_bytes"), format_bytes(value)))
        elif isinstance(value, Mapping):
            rows += _flat(value, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for i, entry in enumerate(value):
                rows += _flat(entry, f"{name}[{i}].")
        elif value is not None and value != []:
            rows.append((name, value if isinstance(value, str) else json.dumps(value)))
    return rows
