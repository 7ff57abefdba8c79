"""Pages in a real browser: Debian's chromium, headless, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpumemtrace.report.page import render_page
from gpumemtrace.report.results import collect
from gpumemtrace.trace import Trace


def write_page(trace: Trace, folder: Path, name: str = "report.html") -> Path:
    """Write the report of ``trace`` into ``folder``."""
    file = folder / name
    file.write_text(render_page(collect(trace)), encoding="utf-8")
    return file


@dataclass
class Opened:
    """A page, what it wrote to the console, and what it asked the network for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def ask(self, script: str) -> Any:
        """Evaluate JavaScript, with ``report`` at hand."""
        return self.page.evaluate(f"gpumemtrace.then((report) => {{ return {script}; }})")

    def wait_until(self, script: str) -> None:
        self.page.wait_for_function(script, timeout=10_000)


@contextmanager
def browser() -> Iterator[Any]:
    """Start the browser; skip, with the reason, where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        pytest.skip("no chromium here (apt install chromium)")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield running
        running.close()


@contextmanager
def opened(running: Any, file: Path, **context_options: Any) -> Iterator[Opened]:
    """Open ``file`` and wait until it has drawn itself."""
    options = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}
    context = running.new_context(**options | context_options)
    found = Opened(context.new_page())
    found.page.on("console", lambda message: found.complaints.append(message.text))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.goto(file.as_uri())
    found.ask("true")
    yield found
    context.close()
