"""A team's own probes as phases, and marks of threads that never allocate, on the simulated GPU."""

from __future__ import annotations

import json

import pytest
from launch import RUN, python
from synthetic import MIB

import gpumemtrace
from gpumemtrace.analysis.phases import find_phases
from gpumemtrace.schema import Kind

pytestmark = [pytest.mark.simgpu, pytest.mark.usefixtures("simulated_gpu")]

_PROBES = """
import gpumemtrace, time, torch

class Trainer:
    kept, host = [], []

    def generate(self):
        self.kept.append(torch.empty(2 << 20, dtype=torch.uint8, device="cuda"))
        self.host.append(bytearray(b"x" * (1 << 20)))
        time.sleep(0.01)

    def save(self):
        time.sleep(0.005)

trainer = gpumemtrace.wrap(Trainer(), {"generate": "rollout", "save": "checkpoint"})
for step in range(120):
    trainer.generate()
    trainer.save()
    gpumemtrace.step()
started = []
for _ in range(200):
    begun = time.perf_counter_ns()
    gpumemtrace.now()
    started.append(time.perf_counter_ns() - begun)
print(min(started))
"""


def test_wrapped_methods_with_their_changes_of_device_and_host(tmp_path):
    (tmp_path / "train.py").write_text(_PROBES)
    ran = python(*RUN, "-q", "-o", "train.gmt", "train.py", cwd=tmp_path)
    assert int(ran.stdout) < 50_000  # ns that `now` takes, however long the recording
    args = ("-m", "gpumemtrace", "phases", "--json", "--steps", "20:120", "train.gmt")
    result = json.loads(python(*args, cwd=tmp_path).stdout)
    assert result["steps"] == 100
    phases = {row["name"]: row for row in result["devices"][0]["phases"]}
    assert phases["rollout"]["allocated_bytes"] == 2 * MIB
    assert phases["rollout"]["reserved_bytes"] == pytest.approx(2 * MIB, rel=0.2)
    assert phases["checkpoint"]["allocated_bytes"] == 0
    # Samples come every 50 ms, so two phases of one step share them; none is lost.
    host = phases["rollout"]["host_bytes"] + phases["checkpoint"]["host_bytes"]
    assert host == pytest.approx(MIB, rel=0.25)
    assert phases["rollout"]["device_used_bytes"] > 200 * MIB


_RANK_3 = """
import threading, time
import gpumemtrace, torch

torch.cuda.set_device(3)
stop = threading.Event()

def busy(name):
    while not stop.is_set():
        with gpumemtrace.phase(name):
            time.sleep(0.001)

threads = [threading.Thread(target=busy, args=(f"worker {i}",)) for i in range(3)]
for thread in threads:
    thread.start()
for step in range(20):
    with gpumemtrace.phase("work"):
        torch.empty(1 << 20, device="cuda")
        time.sleep(0.005)
    gpumemtrace.step()
stop.set()
for thread in threads:
    thread.join()
"""


def test_marks_of_threads_that_never_allocate_land_on_no_other_device(tmp_path):
    (tmp_path / "train.py").write_text(_RANK_3)
    rank = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "4"}
    python(*RUN, "-q", "-o", "r.gmt", "train.py", cwd=tmp_path, devices=4, env=rank)
    (path,) = tmp_path.glob("r*.gmt")
    trace = gpumemtrace.open(path)
    assert trace.devices == trace.active_devices == (3,)
    (phases,) = find_phases(trace)
    assert phases.device == 3
    used = {use.name: use.count for use in phases.phases}
    assert used["work"] == 20
    assert all(used[f"worker {i}"] >= 20 for i in range(3))
    assert len(set(trace.phases.thread.tolist())) >= 4
    assert set(trace.records(Kind.PHASE)["device"].tolist()) == {-1}
    assert set(trace.device[trace.kind == Kind.ALLOC].tolist()) == {3}
