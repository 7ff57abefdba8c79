"""Sessions begun by `install()`: on the simulated GPU, several in one process where they can be."""

from __future__ import annotations

from pathlib import Path

import pytest
from launch import python

import gpumemtrace
from gpumemtrace.analysis.phases import find_phases
from gpumemtrace.schema import Category, Kind

pytestmark = pytest.mark.simgpu


def test_a_session_from_begin_to_end(tmp_path: Path) -> None:
    code = """
import pathlib, torch, gpumemtrace
here = pathlib.Path.cwd()
def use(n):
    torch.empty(n, dtype=torch.uint8, device="cuda")

with gpumemtrace.install("a.gmt", phases="manual", time_resolution_ns=1) as session:
    assert session.path == here / "a.gmt" and session.path.exists() and not session.closed
    assert gpumemtrace.install() is session
    assert gpumemtrace.install("a.gmt") is session
    use(1001)
    with gpumemtrace.phase("mine"):
        use(1002)
        now = gpumemtrace.now()
        assert now.phase == "mine" and now.devices[0].reserved_bytes == 2 << 20
        assert now.devices[0].allocated_bytes == torch.cuda.memory_allocated() == 0
assert session.closed and session.stats.events > 4 and session.stats.dropped == 0
assert "closed" in repr(session)
stats = session.stats
session.close()
use(1003)
assert session.stats == stats

second = gpumemtrace.install("b.gmt")
use(1004)
gpumemtrace.uninstall()
gpumemtrace.uninstall()
assert second.closed and second.stats.skipped >= 2

try:
    gpumemtrace.install("a.gmt")
except gpumemtrace.GpuMemTraceError as error:
    assert "a.gmt is there already" in str(error)
else:
    raise AssertionError
before = session.path.read_bytes()
for bad in ("no/such/folder.gmt", "."):
    try:
        s = gpumemtrace.install(bad)
        assert bad == "." and s.path.parent == here  # a folder: the usual name in it
        s.close()
    except gpumemtrace.GpuMemTraceError as error:
        assert "not a folder" in str(error)
with gpumemtrace.install("b.gmt", force=True):
    use(1005)
for wrong in ({"on_full": "wait"}, {"phases": "x"}):
    try:
        gpumemtrace.install("c.gmt", **wrong)
    except ValueError:
        continue
    raise AssertionError
assert session.path.read_bytes() == before
assert not (here / "c.gmt").exists()
"""
    python("-c", code, cwd=tmp_path)
    first = gpumemtrace.open(tmp_path / "a.gmt")
    assert first.size_bytes.tolist() == [1001, 0, 1002, 0]
    assert [first.phase_name(p) for p in first.phase] == [None, None, "mine", "mine"]
    assert first.footer["reason"] == "closed"
    again = gpumemtrace.open(tmp_path / "b.gmt")
    assert again.size_bytes.tolist() == [1005, 0]
    assert again.run_record["devices"] == first.run_record["devices"]


def test_the_run_record(tmp_path: Path) -> None:
    script = tmp_path / "record.py"
    script.write_text(
        "import torch, gpumemtrace\n"
        "gpumemtrace.install('t.gmt')\n"
        "torch.empty(1000, device='cuda:1')\n"
    )
    env = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
    python("record.py", "--token", "x", cwd=tmp_path, devices=2, env=env)
    trace = gpumemtrace.open(tmp_path / "t.gmt")
    record = trace.run_record
    assert record["script"] == "record"
    assert record["argv"] == ["record.py", "--token", "***"]
    assert (record["rank"], record["local_rank"], record["world_size"]) == (3, 1, 4)
    assert record["torch"].startswith("2.")
    assert [device["index"] for device in record["devices"]] == [0, 1]
    assert record["devices"][1]["memory_bytes"] > 100 << 30
    assert record["devices"][1]["compute_capability"] == "9.0"
    assert record["allocator"]["backend"] == "native"
    assert record["simulated"]["gpu"] == record["devices"][0]["name"] or record["simulated"]["gpu"]
    assert isinstance(record["simulated"]["approximations"], list)
    assert trace.footer["reason"] == "exit"
    assert trace.devices == (1,)


def test_tags_of_parameters_gradients_and_state(tmp_path: Path) -> None:
    code = """
import torch, gpumemtrace
model = torch.nn.Sequential(torch.nn.Linear(100, 200), torch.nn.BatchNorm1d(200))
def train(model, optimizer):
    for _ in range(2):
        model(torch.ones(4, 100, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

with gpumemtrace.install("auto.gmt"):
    model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer)
    frozen = torch.nn.Linear(10, 10).cuda()
    optimizer.add_param_group({"params": [*frozen.parameters()]})
    train(model, optimizer)
    gpumemtrace.tag(torch.ones(77, dtype=torch.uint8, device="cuda"), "my tensor")
    gpumemtrace.tag(torch.ones(3), "not on the GPU")
with gpumemtrace.install("manual.gmt", phases="manual"):
    other = torch.nn.Linear(30, 40).cuda()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    gpumemtrace.watch(other, optimizer)
    for _ in range(2):
        other(torch.ones(2, 30, device="cuda")).sum().backward()
        optimizer.step()
"""
    python("-c", code, cwd=tmp_path)

    def tags(name: str) -> dict[str, tuple[str, int]]:
        trace = gpumemtrace.open(tmp_path / name)
        found = trace.records(Kind.TAG)
        return {
            trace.text(int(text)): (Category(int(category)).name, int(size))
            for text, category, size in zip(
                found["extra"], found["stream"], found["size_bytes"], strict=True
            )
        }

    assert tags("manual.gmt") == {
        "weight": ("PARAMETER", 4800),
        "bias": ("PARAMETER", 160),
        "weight.grad": ("GRADIENT", 4800),
        "bias.grad": ("GRADIENT", 160),
        "weight.momentum_buffer": ("OPTIMIZER_STATE", 4800),
        "bias.momentum_buffer": ("OPTIMIZER_STATE", 160),
    }
    found = tags("auto.gmt")
    assert found["0.weight"] == ("PARAMETER", 80_000)
    assert found["1.running_mean"] == ("BUFFER", 800)
    assert found["0.weight.exp_avg_sq"] == ("OPTIMIZER_STATE", 80_000)
    assert found["1.bias.grad"] == ("GRADIENT", 800)
    assert found["parameter 4"] == ("PARAMETER", 400)  # of the group added later
    assert found["my tensor"] == ("UNKNOWN", 77)
    assert "not on the GPU" not in found


def test_a_disk_that_fails_is_one_warning_and_the_training_goes_on(tmp_path: Path) -> None:
    code = """
import sys, torch, gpumemtrace
torch.manual_seed(0)
if sys.argv[1] != "plain":
    session = gpumemtrace.install(sys.argv[1], force=True)
x = torch.ones(1000)
for _ in range(200):
    x.cuda()
    x = x * 1.01
print(float(x.sum()))
if sys.argv[1] != "plain":
    session.close()
    assert session.stats.error, session.stats
"""
    plain = python("-c", code, "plain", cwd=tmp_path)
    # A full disk; a folder where nobody may write (not even root).
    for path in ("/dev/full", "/sys/trace.gmt"):
        traced = python("-c", code, path, cwd=tmp_path)
        assert traced.stdout == plain.stdout
        warnings = [line for line in traced.stderr.splitlines() if "gpumemtrace" in line]
        assert len(warnings) == 1, traced.stderr
        assert path in warnings[0]


def test_nested_phases_have_exact_peaks_on_each_device(tmp_path: Path) -> None:
    code = """
import torch, gpumemtrace
from gpumemtrace import phase
MiB = 1 << 20
def take(mib, device=0):
    return torch.empty(mib * MiB, dtype=torch.uint8, device=f"cuda:{device}")

@phase("train")
def inner():
    take(4)
    return take(1)

@phase("eval")
def batches():
    for _ in range(2):
        yield take(16)

gpumemtrace.install("t.gmt", phases="manual")
with phase("train"):
    base = take(8)
    with phase("eval"):
        try:
            with phase("train"):
                big = take(32)
                take(64, 1)
                raise ValueError
        except ValueError:
            del big
        kept = inner()
    for held in batches():
        take(2)
        del held
after = take(100)
"""
    python("-c", code, cwd=tmp_path, devices=2)
    mib = 1 << 20
    zero, one = find_phases(gpumemtrace.open(tmp_path / "t.gmt"))
    uses = {"/".join(use.path): use for use in zero.paths}
    assert {path: (use.peak["allocated"] or 0) / mib for path, use in uses.items()} == {
        "train": 40,
        "train/eval": 40,
        "train/eval/train": 40,
    }
    assert (uses["train"].self_peak["allocated"] or 0) / mib == 27  # held by the loop, and 2
    assert uses["train/eval/train"].count == 2
    assert uses["train"].net_allocated_bytes == 9 * mib
    assert (zero.outside.peak["allocated"] or 0) / mib == 109
    uses = {"/".join(use.path): use for use in one.paths}
    assert (uses["train/eval/train"].peak["allocated"] or 0) / mib == 64


def test_a_fork_while_another_thread_installs_leaves_the_child_free(tmp_path: Path) -> None:
    code = """
import os, signal, threading
from gpumemtrace.capture import session
held = threading.Event()

def install():
    with session._lock:
        held.set()
        threading.Event().wait()

threading.Thread(target=install, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(10)
    session.uninstall()
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
    assert python("-c", code, cwd=tmp_path).stdout == "0\n"
