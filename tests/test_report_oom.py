"""GIVEN a run that ran out of memory, WHEN reported, THEN why it died is said first."""

from __future__ import annotations

from pathlib import Path

import pytest
import scenarios
from browser import opened, write_page
from launch import RUN, python
from synthetic import MIB

import gpumemtrace
from gpumemtrace.analysis.oom import CAUSES, find_oom
from gpumemtrace.units import format_bytes

GIB = 1 << 30


def sections_of(found) -> list[str]:
    return found.page.locator("main > section").evaluate_all("(all) => all.map((s) => s.id)")


def test_cause_and_helps_are_those_of_the_command(chromium, tmp_path):
    trace = scenarios.died_of_oom().trace()
    last = find_oom(trace).requests[-1]
    with opened(chromium, write_page(trace, tmp_path)) as found:
        assert sections_of(found)[:2] == ["out_of_memory", "overview"]
        section = found.page.locator("#out_of_memory")
        assert "8.000 GiB failed on cuda:0" in section.locator("h3").first.inner_text()
        assert CAUSES[last.cause] in section.locator(".notice").inner_text()
        helps = section.get_by_role("region", name="What would have helped")
        rows = helps.locator("tbody tr").evaluate_all(
            "(all) => all.map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
        assert rows
        assert rows == [
            [h.change, format_bytes(h.size_bytes), "yes" if h.is_enough else "no", h.evidence]
            for h in last.helps
        ]
        assert "ended with the last one" in section.locator(".lead").inner_text()
        told = found.page.locator(".verdicts .bad", has_text="Out of memory").inner_text()
        assert "8.000 GiB" in told and "ended with it, the last of 2" in told
        assert CAUSES[last.cause] in told


def test_an_earlier_failure_unfolds_from_the_keyboard(chromium, tmp_path):
    trace = scenarios.died_of_oom().trace()
    with opened(chromium, write_page(trace, tmp_path)) as found:
        earlier = found.page.locator("#out_of_memory details")
        assert earlier.locator("summary").inner_text().startswith("4.000 GiB failed on cuda:0")
        earlier.locator("summary").press("Enter")
        earlier.locator("strong", has_text="Cause").wait_for()
        assert earlier.locator(".notice").count() == 1
        assert found.complaints == []


def test_a_failure_that_was_caught_does_not_come_first(chromium, tmp_path):
    trace = scenarios.out_of_memory().trace()
    with opened(chromium, write_page(trace, tmp_path)) as found:
        assert sections_of(found)[0] == "overview"
        assert "The program went on" in found.page.locator("#out_of_memory .lead").inner_text()
        told = found.page.locator(".verdicts .bad", has_text="Out of memory").inner_text()
        assert CAUSES[find_oom(trace).requests[0].cause] in told


@pytest.mark.simgpu
def test_an_end_outside_pytorch_comes_first_too(chromium, tmp_path: Path):
    program = (
        "import torch\n"
        "cache = [torch.empty(100 << 20, dtype=torch.uint8, device='cuda') for _ in range(19)]\n"
        "import time; time.sleep(0.2)\n"
        "raise RuntimeError('NCCL error: Failed to CUDA malloc: out of memory')"
    )
    env = {"GPUMEMTRACE_SIM_MEMORY_BYTES": str(2 * GIB), "GPUMEMTRACE_SIM_CONTEXT_BYTES": "0"}
    python(*RUN, "-q", "-o", "t.gmt", "-c", program, cwd=tmp_path, env=env, check=False)
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    outside = find_oom(trace).outside
    assert outside is not None and outside.device_free_bytes < 200 * MIB
    with opened(chromium, write_page(trace, tmp_path)) as found:
        assert sections_of(found)[0] == "out_of_memory"
        told = found.page.locator("#out_of_memory .notice").inner_text()
        assert format_bytes(outside.device_free_bytes) in told and "NCCL error" in told
