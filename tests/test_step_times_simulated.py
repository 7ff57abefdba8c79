"""A run that has to flush its cache on known steps, on the simulated GPU."""

from __future__ import annotations

import json

import pytest
from launch import RUN, python

import gpumemtrace

pytestmark = [pytest.mark.simgpu, pytest.mark.usefixtures("simulated_gpu")]

# On these steps the cache is full of segments that fit nothing, so a request finds room only after
# they went back; steps take long enough that other work on the machine makes none of them slow.
_PROGRAM = """
import json, time
import torch

limit = 64 << 20
needs = {5: 50, 11: 58, 23: 50}
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(limit / total)
w = torch.nn.Parameter(torch.empty(16, device="cuda"))
optimizer = torch.optim.SGD([w], lr=0.1)
for step in range(30):
    with gpumemtrace.phase("load"):
        if step in needs:
            many = [torch.empty(20 << 20, dtype=torch.uint8, device="cuda") for _ in range(2)]
            del many
            torch.empty(needs[step] << 20, dtype=torch.uint8, device="cuda")
    if step == 17:
        torch.cuda.empty_cache()
    loss = (w * torch.empty(16, device="cuda")).sum()
    loss.backward()
    optimizer.step()
print(json.dumps(torch.cuda.memory_stats()["num_alloc_retries"]))
"""


def test_retries_are_those_that_torch_counts(tmp_path):
    (tmp_path / "train.py").write_text("import gpumemtrace\n" + _PROGRAM)
    ran = python(*RUN, "-q", "-o", "train.gmt", "train.py", cwd=tmp_path)
    trace = gpumemtrace.open(tmp_path / "train.gmt")
    times = trace.step_times()
    retries = [flush for flush in times.driver.flushes if flush.kind == "retry"]
    assert len(retries) == json.loads(ran.stdout) == 3
    assert [(flush.step, flush.phase) for flush in retries] == [(n, "load") for n in (5, 11, 23)]
    assert [flush.size_bytes >> 20 for flush in retries] == [50, 58, 50]
    assert all(flush.duration_ns > 0 for flush in retries)
    (emptied,) = [flush for flush in times.driver.flushes if flush.kind == "empty_cache"]
    assert emptied.step == 17
    load = times.driver.by_phase["load"]
    assert (load.retries, load.retry_ns) == (3, sum(flush.duration_ns for flush in retries))
    for step in (5, 11, 23):
        assert times.driver.by_step[step].retries == 1
