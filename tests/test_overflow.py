"""Events that come faster than they can be written: dropped and told of, or waited for."""

import json
from pathlib import Path
from typing import Any

import pytest
from hook import run_traced
from launch import RUN, python

import gpumemtrace
from gpumemtrace.analysis.lines import LineStream
from gpumemtrace.schema import Kind

pytestmark = pytest.mark.simgpu

# Bursts far larger than the ring; after each a pause, an allocation on each device, and a step mark
# beside which torch's own counters are printed.
BURSTS = """
    import json, sys, time
    import torch
    import hook_child
    from gpumemtrace import _core

    hook_child.start(ring_bytes=4096, block_timeout_ms=int(sys.argv[2]), drain_interval_ms=5)
    churn = hook_child.Churn(int(sys.argv[1]), shared=0.1, emptied=0.01)
    steps = hook_child.Steps()
    for _ in range(6):
        churn.go(1500)
        time.sleep(0.05)
        churn.kept += [torch.empty(512, device=f"cuda:{device}") for device in range(2)]
        steps.end()
    stats = _core.session_stop("{}")
    print(json.dumps(stats["dropped"]), json.dumps(stats["stalls"]), stats["stalled_ns"])
    print(json.dumps(steps.counters))
"""


def check_at_steps(path: Path, expected: list[dict[str, dict[str, int]]]) -> None:
    """At each step mark no line is uncertain, and each is what torch counts."""
    trace = gpumemtrace.open(path)
    now: dict[str, dict[str, int]] = {}
    uncertain: dict[str, bool] = {}
    step = 0
    for batch, lines in LineStream(trace):
        for i, kind in enumerate(batch.raw["kind"].tolist()):
            if kind == Kind.STEP:
                counters = {
                    device: {line: values[f"{line}_bytes.current"] for line in lines.values}
                    for device, values in expected[step].items()
                }
                assert now == counters, f"step {step}"
                assert not any(uncertain.values()), f"step {step}"
                step += 1
            elif kind == Kind.GAP:
                uncertain = dict.fromkeys(uncertain, True)
            elif (device := int(lines.device[i])) >= 0:
                now[str(device)] = {name: int(line[i]) for name, line in lines.values.items()}
                uncertain[str(device)] = bool(lines.uncertain[i])
    assert step == len(expected) == 6


def burst(tmp_path: Path, seed: int, timeout_ms: int) -> tuple[Any, ...]:
    path = tmp_path / "t.gmt"
    args = [str(seed), str(timeout_ms)]
    done = run_traced(BURSTS, path, args=args, devices=2, memory="2GiB")
    figures, counters = done.stdout.splitlines()[-2:]
    return (path, json.loads(counters), *(int(figure) for figure in figures.split()))


@pytest.mark.parametrize("seed", range(3))
def test_lines_are_exact_again_after_each_gap(tmp_path: Path, seed: int) -> None:
    path, counters, dropped, stalls, _ = burst(tmp_path, seed, 0)
    trace = gpumemtrace.open(path)
    assert dropped > 1000, "the ring never overflowed"
    assert stalls == 0
    gaps = trace.records(Kind.GAP)
    assert len(gaps["address"]) >= 5
    assert gaps["address"].sum() == trace.dropped_events == dropped
    check_at_steps(path, counters)


def test_who_waits_loses_nothing(tmp_path: Path) -> None:
    path, counters, dropped, stalls, stalled_ns = burst(tmp_path, 0, 10_000)
    trace = gpumemtrace.open(path)
    assert dropped == trace.dropped_events == 0
    assert stalls > 10, "the ring was never full"
    assert trace.run_record["stalls"]["count"] == stalls
    assert trace.run_record["stalls"]["total_ns"] == stalled_ns
    assert trace.footer["totals"]["stalls"] == trace.run_record["stalls"]
    check_at_steps(path, counters)


def test_block_from_the_command_line(tmp_path: Path) -> None:
    Path(tmp_path, "fast.py").write_text(
        "import torch\nfor _ in range(3000):\n    torch.empty(1000, device='cuda')\n"
    )
    options = ("-o", "t.gmt", "--ring-bytes", "4096", "--on-full", "block")
    python(*RUN, *options, "--block-timeout", "5000", "fast.py", cwd=tmp_path)
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    assert trace.dropped_events == 0
    assert trace.run_record["stalls"]["count"] > 0
    told = python("-m", "gpumemtrace", "times", "t.gmt", cwd=tmp_path).stdout
    assert "times for room in the ring" in told.replace("\n", " ")
