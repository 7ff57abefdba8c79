"""A table as CSV: RFC 4180, UTF-8, a line of names first, nothing where a value is not known."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.export.formats import ExportOptions, Written
from gpumemtrace.export.tables import Column, read_table
from gpumemtrace.trace_data import TraceData

__all__ = ["write"]


def write(trace: TraceData, output: Path, options: ExportOptions) -> Written:
    """Write the table ``options.table``, part by part."""
    table = read_table(trace, options)
    count = 0
    with output.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        for part in table.parts:
            values = [_values(column, part[name]) for name, column in table.columns.items()]
            writer.writerows(zip(*values, strict=True))
            count += len(values[0])
    return Written(count, options.table)


def _values(column: Column, array: npt.NDArray[Any]) -> list[Any]:
    values = array.astype(object)
    if column.names is not None:
        values = np.array([*column.names, ""], object)[array]  # -1 is the last
    elif column.is_nullable:
        values[array < 0] = ""
    found: list[Any] = values.tolist()
    return found
