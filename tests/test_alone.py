"""Tests marked ``alone``: nothing runs beside them, and their turn comes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from alone import turn


def test_what_is_alone_is_alone_and_its_turn_comes(tmp_path: Path) -> None:
    files = {"door_file": tmp_path / "door", "room_file": tmp_path / "room"}
    for file in files.values():
        file.touch()
    running: set[str] = set()
    over = threading.Event()
    met_others = False

    def go_on_with_others(name: str) -> None:
        nonlocal met_others
        while not over.is_set():
            with turn(alone=False, **files):
                running.add(name)
                assert "alone" not in running
                over.wait(0.01)
                met_others |= len(running) > 1
                running.remove(name)

    with ThreadPoolExecutor(4) as threads:
        others = [threads.submit(go_on_with_others, name) for name in "abc"]
        try:
            for _ in range(10):
                with turn(alone=True, **files):
                    assert not running
                    running.add("alone")
                    over.wait(0.01)
                    assert running == {"alone"}
                    running.remove("alone")
        finally:
            over.set()
        for other in others:
            other.result()
    assert met_others
