"""Several stages of reading at once: decoding, finding phases, drawing lines each on its thread.

The native code of each stage releases the interpreter, so that two processors share a trace.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

__all__ = ["read_ahead"]

_Item = TypeVar("_Item")


def read_ahead(items: Generator[_Item, None, None]) -> Iterator[_Item]:
    """Yield ``items``, the next one of which is made on another thread meanwhile.

    What they raise is raised here. A reader that leaves early waits for the one being made, no
    other is.
    """
    with closing(items), ThreadPoolExecutor(1, thread_name_prefix="gpumemtrace-read") as worker:
        ahead = worker.submit(next, items, None)
        while (item := ahead.result()) is not None:
            ahead = worker.submit(next, items, None)
            yield item
