"""Tables of a trace for pyarrow and pandas, both optional."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.export.formats import ExportOptions
from gpumemtrace.export.tables import Column, concatenated, read_table
from gpumemtrace.trace_data import TraceData

__all__ = ["arrow_schema", "record_batch", "require", "to_arrow", "to_pandas"]


def require(module: str) -> Any:
    """Import an optional package, or say what to type."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        extra = {"pyarrow": "parquet"}.get(package, package)
        raise GpuMemTraceError(
            f"{package} is not installed: pip install 'gpumemtrace[{extra}]'"
        ) from None


def to_arrow(trace: TraceData, table: str) -> Any:
    """Return a table of the trace as a ``pyarrow.Table``."""
    pyarrow = require("pyarrow")
    found = read_table(trace, ExportOptions(table=table))
    schema = arrow_schema(found.columns)
    batches = [record_batch(found.columns, part, schema) for part in found.parts]
    return pyarrow.Table.from_batches(batches, schema)


def to_pandas(trace: TraceData, table: str) -> Any:
    """Return a table of the trace as a ``pandas.DataFrame``; names are categories."""
    pandas = require("pandas")
    found = read_table(trace, ExportOptions(table=table))
    arrays = concatenated(tuple(found.columns), found.parts)
    return pandas.DataFrame(
        {name: _series(pandas, column, arrays[name]) for name, column in found.columns.items()}
    )


def _series(pandas: Any, column: Column, array: npt.NDArray[Any]) -> Any:
    if column.names is not None:
        codes = array.astype(np.int32)
        return pandas.Categorical.from_codes(codes, categories=list(column.names))
    if column.is_nullable:
        return pandas.arrays.IntegerArray(array.astype(np.int64), array < 0)
    return array.astype(column.dtype)


def arrow_schema(columns: Mapping[str, Column]) -> Any:
    """Return the schema: names as dictionaries of texts."""
    pyarrow = require("pyarrow")
    texts = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    return pyarrow.schema(
        [
            pyarrow.field(
                name,
                texts if column.names is not None else pyarrow.from_numpy_dtype(column.dtype),
                nullable=column.names is not None or column.is_nullable,
            )
            for name, column in columns.items()
        ]
    )


def record_batch(
    columns: Mapping[str, Column], part: Mapping[str, npt.NDArray[Any]], schema: Any
) -> Any:
    """Return the rows of a part as a ``pyarrow.RecordBatch``."""
    pyarrow = require("pyarrow")
    arrays = []
    for name, column in columns.items():
        values = part[name]
        if column.names is not None:
            codes = pyarrow.array(values.astype(np.int32), mask=values.astype(np.int32) < 0)
            names = pyarrow.array(column.names, pyarrow.string())
            arrays.append(pyarrow.DictionaryArray.from_arrays(codes, names))
        else:
            mask = values < 0 if column.is_nullable else None
            arrays.append(pyarrow.array(values.astype(column.dtype), mask=mask))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
