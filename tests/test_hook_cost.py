"""What recording adds to an allocation and its free, watched as a ratio, loosely."""

import json
from pathlib import Path

import pytest
from simgpu import run_simulated

pytestmark = pytest.mark.simgpu

BENCHMARK = Path(__file__).resolve().parent.parent / "benchmarks" / "hook_overhead.py"

# Seen on a quiet machine: 1.17 at both sizes; with the allocator's counters read for each block of
# 4 MiB, 1.43.
MOST = 1.4


@pytest.mark.alone
def test_a_pair_costs_little_more_at_any_size(tmp_path: Path) -> None:
    ratios: dict[str, float] = {}
    for _ in range(4):  # the machine may have other things to do: the least of several tries
        out = tmp_path / "hook.json"
        table = run_simulated(BENCHMARK, args=["--rounds", "40", "-o", str(out)]).stdout
        rows = {(row["size"], row["mode"]): row for row in json.loads(out.read_text())["rows"]}
        assert len(rows) == 10
        assert all(f"{row['median_ns']}" in table for row in rows.values())
        for size in ("1 KiB", "4 MiB"):
            native, traced = rows[size, "native"], rows[size, "traced"]
            assert traced["single_p999_ns"] >= traced["single_median_ns"] > 0
            ratio = traced["min_ns"] / native["min_ns"]
            ratios[size] = min(ratio, ratios.get(size, ratio))
        if max(ratios.values()) < MOST:
            return
    pytest.fail(f"ns per pair, traced against native: {ratios}")


def test_modules_and_stacks_are_one_table(tmp_path: Path) -> None:
    """C65."""
    out = tmp_path / "who.json"
    who = BENCHMARK.with_name("who.py")
    table = run_simulated(who, args=["--rounds", "1", "--workloads", "-o", str(out)]).stdout
    found = json.loads(out.read_text())
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    modes = list(found["pairs"])
    assert rows == ["added by", *(mode for mode in modes if mode != "traced")]
    assert {"modules", "stacks >= 1 MiB", "stacks, 3 of 100 steps"} < set(modes)
    assert any("_record_memory_history" in mode for mode in modes)
    assert all(min(found[what][mode]) > 0 for what in ("pairs", "calls") for mode in modes)
    assert 0 < found["new"]["seen before"] < found["new"]["with a new function in it"]


def test_threads_each_on_a_stream(tmp_path: Path) -> None:
    out = tmp_path / "hook.json"
    run_simulated(BENCHMARK, args=["--rounds", "3", "--threads", "2", "-o", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 10
    assert all(row["min_ns"] > 0 and "single_p999_ns" not in row for row in rows)
