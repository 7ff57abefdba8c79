"""What every test relies on: the installed package, and tests skipped where they can't run.

The root of the repository holds the source folder ``gpumemtrace/``, which has no native part.
Python puts the current folder first on ``sys.path`` (``python -m pytest``), so it would be imported
instead of the installed package. The root is taken off the path here, however pytest was started.
"""

import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]

from gpumemtrace import build_info  # noqa: E402
from gpumemtrace.errors import InstallError  # noqa: E402

# A shell starts background jobs with SIGINT ignored, and what they start inherits that; a signal
# with a handler reaches children at its default. Tests of Ctrl-C need the default.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Other work shares the machines that run this: time says nothing about an example.
hypothesis.settings.register_profile(
    "gpumemtrace", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("gpumemtrace")


@pytest.fixture(scope="session")
def simulated_gpu() -> None:
    """Skip, with the reason, where there is no simulated GPU (see tests/support/simgpu.py)."""
    from simgpu import skip_without_simgpu

    skip_without_simgpu()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Return a running browser, one for a file's tests (see tests/support/browser.py).

    Not for longer: while it runs, so does an event loop in this thread, and asyncio has no other.
    """
    from browser import browser

    with browser() as running:
        yield running


def pytest_report_header() -> list[str]:
    """Say which gpumemtrace is tested, and for which torch it was built."""
    try:
        torch = build_info.torch_version()
    except InstallError as error:
        pytest.exit(f"{error} (or make test)", returncode=4)
    hook = f"for torch {torch}" if torch else f"without a torch hook: {build_info.why_no_hook()}"
    return [f"gpumemtrace: {Path(build_info.__file__).parent}, {hook}"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a test marked ``alone`` be alone, in whatever worker of ``pytest -n`` it runs."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    from alone import turn

    with turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a hook in a build without one, and a GPU where there is none."""
    why_no_hook = build_info.why_no_hook()
    has_gpu = Path("/dev/nvidiactl").exists()
    for item in items:
        if why_no_hook and (item.get_closest_marker("simgpu") or item.get_closest_marker("gpu")):
            item.add_marker(pytest.mark.skip(reason=f"no torch hook: {why_no_hook}"))
        elif item.get_closest_marker("gpu") and not has_gpu:
            item.add_marker(pytest.mark.skip(reason="no GPU on this machine"))
