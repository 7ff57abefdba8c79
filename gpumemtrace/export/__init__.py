"""Other people's formats, written: one module each, imported when it is asked for."""

__all__ = ["FORMATS"]

FORMATS = {
    "memory_viz": ".pickle",
    "perfetto": ".pftrace",
    "parquet": ".parquet",
    "csv": ".csv",
}
"""The formats by name, and how their files end."""
