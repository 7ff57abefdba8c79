"""pytest plugin: a test fails when it takes more GPU memory than its marks allow.

::

    @pytest.mark.gpu_memory_limit("24 GiB", phase="backward")
    @pytest.mark.gpu_memory_no_growth(steps=50)
    def test_training_fits(): ...

Where there is no GPU, ``gpu_memory_simulate = h100`` in the pytest configuration (or
``--gpu-memory-simulate h100``) runs pytest on the simulated one; without it such tests are skipped.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpumemtrace.analysis.budget_findings import Finding

from gpumemtrace.errors import GpuMemTraceError, InstallError

__all__: list[str] = []

# Less than this a step is no growth: one block of the allocator, the least it hands out.
_TOLERATED = "512 B"
_LEAST_STEPS = 20

_MARKERS = (
    "gpu_memory_limit(max, *, phase=None, line='allocated', category=None, steps=None, "
    "device=None): fail if the test's peak is higher, such as '24 GiB'",
    f"gpu_memory_no_growth(*, steps={_LEAST_STEPS}, tolerate='{_TOLERATED}', from_step=None): fail "
    "if memory grows from step to step, or if there are fewer steps",
    "gpu_memory_failed_requests(max, *, device=None): let so many requests fail for want of "
    "memory; without it a test with one of these marks fails if one does",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--gpu-memory-simulate`` and its entry in the configuration file."""
    text = "without a GPU, run on this simulated one (see gpumemtrace simulate --help)"
    group = parser.getgroup("gpumemtrace", "limits on GPU memory")
    group.addoption("--gpu-memory-simulate", metavar="NAME", help=text)
    parser.addini("gpu_memory_simulate", text)


def pytest_configure(config: pytest.Config) -> None:
    """Name the marks; start pytest anew on the simulated GPU if that is asked for."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    name = config.getoption("gpu_memory_simulate") or config.getini("gpu_memory_simulate")
    if name:
        _ensure_gpu(config, name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record a marked test, and judge the trace once it has passed."""
    rules = _rules_of(item)
    if not rules:
        return (yield)
    import gpumemtrace
    from gpumemtrace.capture.cuda_init import has_driver

    if not has_driver():
        pytest.skip("there is no GPU here; --gpu-memory-simulate h100 runs it on a simulated one")
    folder = Path(tempfile.mkdtemp(prefix="gpumemtrace-"))
    trace = folder / "test.gmt"
    try:
        session = gpumemtrace.install(trace)
    except InstallError as error:
        shutil.rmtree(folder)
        pytest.skip(f"GPU memory can't be traced here: {error}")
    try:
        result = yield
    finally:
        session.close()
    complaint = _judge(item, trace, rules)
    if complaint is None:
        shutil.rmtree(folder)
        return result
    pytest.fail(f"{complaint}\ntrace: {trace}", pytrace=False)


def _ensure_gpu(config: pytest.Config, name: str) -> None:
    from gpumemtrace.capture.cuda_init import has_driver
    from gpumemtrace.capture.gpu_profiles import find_profile
    from gpumemtrace.capture.simulate import exec_simulated, simulated_gpu

    if simulated_gpu() is not None or has_driver():
        return
    try:
        profile = find_profile(name)
        # What pytest has diverted goes back to the terminal: the new process begins with it.
        capture = config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.stop_global_capturing()
        exec_simulated(sys.orig_argv[1:], profile)
    except GpuMemTraceError as error:
        raise pytest.UsageError(f"gpu_memory_simulate: {error}") from None


def _rules_of(item: pytest.Item) -> list[tuple[Any, int]]:
    """The rules of a test's marks, each with the steps that it needs."""
    from gpumemtrace.analysis.budget_rules import parse_rules

    tables: list[tuple[str, dict[str, Any], int]] = []
    for kind in ("limit", "failed_requests"):
        for mark in item.iter_markers(f"gpu_memory_{kind}"):
            entry = dict(mark.kwargs)
            entry |= {"max": mark.args[0]} if len(mark.args) == 1 else {}
            tables.append((kind, entry, 0))
    for mark in item.iter_markers("gpu_memory_no_growth"):
        entry = dict(mark.kwargs)
        steps = entry.pop("steps", _LEAST_STEPS)
        entry |= {"max_per_step": entry.pop("tolerate", _TOLERATED)}
        tables.append(("growth", entry, steps))
    rules = []
    for kind, entry, steps in tables:
        entry = {name: value for name, value in entry.items() if value is not None}
        try:
            rules += [(rule, steps) for rule in parse_rules({kind: [entry]})]
        except GpuMemTraceError as error:
            raise pytest.UsageError(f"{item.nodeid}: wrong mark: {error}") from None
    return rules


def _judge(item: pytest.Item, path: Path, rules: list[tuple[Any, int]]) -> str | None:
    """What is wrong, in words; None if nothing is."""
    import gpumemtrace
    from gpumemtrace.analysis.budget import check_budget
    from gpumemtrace.units import format_count

    if not path.exists():
        return "the test used no GPU memory: its limits say nothing"
    trace = gpumemtrace.open(path)
    complaints = []
    for rule, least_steps in rules:
        if trace.steps.total < least_steps:
            steps = format_count(trace.steps.total, "step")
            are = "is" if trace.steps.total == 1 else "are"
            complaints.append(
                f"{rule.name}: {steps} {are} too few to tell, {least_steps} are asked for (a step "
                "ends with optimizer.step() or gpumemtrace.step())"
            )
    long_enough = [rule for rule, least_steps in rules if trace.steps.total >= least_steps]
    budget = check_budget([trace], long_enough)
    complaints += [_in_words(found) for found in budget.findings if found.verdict != "ok"]
    for doubt in budget.doubts:
        item.warn(pytest.PytestWarning(f"GPU memory: {doubt.what}"))
    return "\n".join(["GPU memory:", *complaints]) if complaints else None


def _in_words(found: Finding) -> str:
    from gpumemtrace.units import format_bytes, format_count

    if found.measured is None:
        return f"{found.rule}: {found.note}"
    if found.unit == "requests":
        measured, limit = format_count(int(found.measured), "failed request"), f"{found.limit:,}"
    else:
        measured, limit = format_bytes(found.measured), format_bytes(found.limit)
    since = "since " if found.unit == "bytes per step" else ""
    step = "" if found.step is None else f", {since}step {found.step}"
    note = "" if found.note is None else f" ({found.note})"
    return f"{found.rule}: {measured} on cuda:{found.device}{step}{note}, allowed are {limit}"
