"""The report: everything known of a trace on one page that loads nothing from outside.

`results` asks the analyses, `sections` says what each part of the page shows of them, `packing` and
`page` make one HTML file of it. Only `results` reads the trace.
"""

__all__: list[str] = []
