"""A table as Parquet, by pyarrow: for DuckDB, pandas, polars, Spark."""

from __future__ import annotations

import json
from pathlib import Path

from gpumemtrace.export.arrow import arrow_schema, record_batch, require
from gpumemtrace.export.formats import ExportOptions, Written
from gpumemtrace.export.tables import read_table
from gpumemtrace.trace_data import TraceData

__all__ = ["write"]


def write(trace: TraceData, output: Path, options: ExportOptions) -> Written:
    """Write the table ``options.table``, a row group per part; the run record is its metadata.

    Raises `GpuMemTraceError` without pyarrow.
    """
    parquet = require("pyarrow.parquet")
    table = read_table(trace, options)
    metadata = {"gpumemtrace.run_record": json.dumps(dict(trace.run_record))}
    schema = arrow_schema(table.columns).with_metadata(metadata)
    count = 0
    with parquet.ParquetWriter(output, schema, compression="zstd") as writer:
        for part in table.parts:
            rows = record_batch(table.columns, part, schema)
            writer.write_batch(rows)
            count += rows.num_rows
    return Written(count, options.table)
