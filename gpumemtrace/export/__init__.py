"""Formats that are written: one module each, imported when it is asked for."""

__all__ = ["FORMATS"]

FORMATS = {
    "memory_viz": ".pickle",
    "perfetto": ".pftrace",
    "parquet": ".parquet",
    "csv": ".csv",
    "gmt": ".copy.gmt",
}
"""The formats by name, and how their files end. All but gmt are other people's."""
