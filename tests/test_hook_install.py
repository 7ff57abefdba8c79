"""Getting in front of torch's allocator: in time, late, too late, not at all; what it says."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hook import run_traced
from hook_lines import replay
from simgpu import result_of, run_simulated

from gpumemtrace import build_info
from gpumemtrace.capture import allocator
from gpumemtrace.errors import InstallError, TorchMismatchError
from gpumemtrace.schema import Kind


@pytest.mark.simgpu
@pytest.mark.parametrize(
    "before",
    [
        "",
        "torch.cuda.is_available()",
        "torch.cuda.device_count()",
        "torch.cuda.init()",
        "torch.cuda.init(); torch.cuda.current_stream(); torch.cuda.Stream()",
        "x = torch.ones(5 << 20, device='cuda'); del x",  # cached, but not handed out
    ],
)
def test_it_is_still_time(tmp_path: Path, before: str) -> None:
    # C18 a, b, c: afterwards every allocation and free comes through the hook.
    program = f"""
        import torch
        {before}
        import hook_child
        hook_child.start()
        live = [torch.ones(n, device="cuda") for n in (10, 3 << 20)]
        live.append(torch.randn(100, 100).cuda())
        live.append(live[2] @ live[2])
        allocator = torch._C._cuda_getAllocator() is not None
        now = torch.cuda.memory_stats()
        live.clear()
        if hasattr(torch, "accelerator") and hasattr(torch.accelerator, "empty_cache"):
            torch.accelerator.empty_cache()
        end = torch.cuda.memory_stats()
        hook_child.stop()
        import json
        print(json.dumps([allocator, now["allocation.all.current"], now["allocated_bytes.all.peak"],
                          end["allocation.all.current"], end["reserved_bytes.all.current"]]))
    """
    allocator_is_ours, blocks, _, left, reserved = result_of(
        run_traced(program, tmp_path / "t.gmt")
    )
    assert allocator_is_ours
    seen = replay(tmp_path / "t.gmt")
    assert seen.counts[Kind.ALLOC] >= blocks >= 4
    assert len(seen.live) == left
    assert seen.unknown_frees == 0
    assert seen.devices[0].now["reserved_bytes"] == reserved


@pytest.mark.simgpu
def test_too_late(tmp_path: Path) -> None:
    # C18 d: names the line that came first, and what to type.
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\n"
        "from gpumemtrace.capture.cuda_init import watch_cuda_init\n"
        "watch_cuda_init()\n"
        "import torch\n"
        "x = torch.zeros(1, device='cuda')  # the line\n"
        "from gpumemtrace.capture import allocator\n"
        "from gpumemtrace.errors import LateInstallError\n"
        "try:\n"
        "    allocator.ensure_installed()\n"
        "except LateInstallError as error:\n"
        "    print(error)\n"
        "y = x + 1; del x\n"
        "print(torch.cuda.memory_allocated())\n",
        encoding="utf-8",
    )
    done = run_simulated(script, args=["--epochs", "3"], cwd=tmp_path)
    message, allocated = done.stdout.splitlines()
    assert f"{script}:5: x = torch.zeros(1, device='cuda')  # the line" in message
    assert "`gpumemtrace run train.py --epochs 3`" in message
    assert "1 blocks" in message or "1 block" in message
    assert allocated == "512"


@pytest.mark.simgpu
def test_too_late_in_a_library_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(
        "import torch\ntorch.cuda.init()\nweights = torch.zeros(3, device='cuda')\n",
        encoding="utf-8",
    )
    program = """
        import torch
        from gpumemtrace.capture.cuda_init import find_initialiser, watch_cuda_init
        watch_cuda_init()
        import library
        print(find_initialiser())
    """
    done = run_simulated(program, env={"PYTHONPATH": str(tmp_path)})
    assert done.stdout.strip() == f"{tmp_path}/library.py:2: torch.cuda.init()"


@pytest.mark.simgpu
def test_another_pluggable_allocator(tmp_path: Path) -> None:
    # C31 (iii): refused by name, before and after CUDA is up.
    program = """
        import torch
        from gpumemtrace.capture import allocator
        from gpumemtrace.errors import InstallError
        stock = torch.cuda.memory.CUDAPluggableAllocator(
            allocator.library_path(), "gpumemtrace_malloc", "gpumemtrace_free")
        torch.cuda.memory.change_current_allocator(stock)
        for _ in range(2):
            try:
                allocator.ensure_installed()
            except InstallError as error:
                print(error)
            torch.ones(1, device="cuda")
        print(allocator.is_installed())
    """
    first, second, installed = run_simulated(program).stdout.splitlines()
    assert first == second
    assert "another CUDA allocator is installed" in first and "'pluggable'" in first
    assert installed == "False"


@pytest.mark.simgpu
def test_by_hand(tmp_path: Path) -> None:
    program = """
        import torch
        from gpumemtrace.capture import allocator
        mine = allocator.TracingAllocator()
        assert isinstance(mine, torch.cuda.memory.CUDAPluggableAllocator)
        assert isinstance(mine._allocator, torch._C._cuda_CUDAAllocator)
        assert allocator.TracingAllocator is allocator.TracingAllocator
        torch.cuda.memory.change_current_allocator(mine)
        assert allocator.is_installed()
        allocator.ensure_installed()
        allocator.ensure_installed()
        del mine
        x = torch.ones(10, device="cuda")
        print(torch.cuda.memory_allocated(), torch.cuda.get_allocator_backend())
    """
    assert run_simulated(program).stdout.split() == ["512", "native"]


STOCK = """
    import json
    import torch
    from gpumemtrace import _core
    from gpumemtrace.capture import allocator
    stock = torch.cuda.memory.CUDAPluggableAllocator(
        allocator.library_path(), "gpumemtrace_malloc", "gpumemtrace_free")
    torch.cuda.memory.change_current_allocator(stock)
    _core.session_start({trace!r}, metadata_json="{{}}")
    x = torch.ones(1000, device="cuda:1")
    y = torch.ones(3 << 20, device="cuda:0")
    z = y * 2
    empty = torch.empty(0, device="cuda:0")
    text = ""
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda:0")
    except torch.OutOfMemoryError as error:
        text = str(error)
    del x, y, z
    _core.session_stop("{{}}")
    print(json.dumps(text))
"""


@pytest.mark.simgpu
def test_stock_path(tmp_path: Path) -> None:
    trace = tmp_path / "t.gmt"
    text = result_of(run_simulated(STOCK.format(trace=str(trace)), devices=2))
    assert text.startswith("CUDA out of memory. Tried to allocate 1024.00 GiB. GPU 0")
    seen = replay(trace)
    assert seen.counts[Kind.ALLOC] == seen.counts[Kind.FREE] == 3
    assert seen.counts[Kind.ALLOC_FAILED] == 1
    assert seen.counts[Kind.SEGMENT_ALLOC] == 3, "memory is cached, not taken anew each time"
    assert {of: device.peak["requested_bytes"] for of, device in seen.devices.items()} == {
        0: 24 << 20,
        1: 4000,
    }
    assert not seen.live and not seen.unknown_frees


# --- what it says where it can't work; no GPU needed ---


@pytest.fixture
def torch_double(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A torch module of a version that can be chosen, in place of the real one."""
    double = SimpleNamespace(__version__="9.9.9+cu130", version=SimpleNamespace(cuda="13.0"))
    monkeypatch.setitem(sys.modules, "torch", double)
    monkeypatch.delitem(sys.modules, "gpumemtrace._torch_hook", raising=False)
    return double


def test_torch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(allocator.importlib, "import_module", missing)
    with pytest.raises(InstallError, match=r"torch is not installed.*pip install") as caught:
        allocator.ensure_installed()
    assert "\n" not in str(caught.value)


def test_torch_needs_something_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ImportError("libcudnn.so.9: cannot open shared object file")

    monkeypatch.setattr(allocator.importlib, "import_module", broken)
    with pytest.raises(InstallError, match=r"importing torch failed: libcudnn"):
        allocator.ensure_installed()


def test_torch_without_cuda(torch_double: SimpleNamespace) -> None:
    torch_double.version.cuda = None
    with pytest.raises(InstallError, match=r"torch 9\.9\.9\+cu130 is not a CUDA build"):
        allocator.ensure_installed()


def test_built_without_the_hook(
    torch_double: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_info, "torch_version", lambda: None)
    monkeypatch.setattr(build_info, "why_no_hook", lambda: "torch was not installed in there")
    with pytest.raises(InstallError, match=r"torch was not installed in there.*pip install"):
        allocator.ensure_installed()


def test_built_for_another_torch(
    torch_double: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_info, "torch_version", lambda: "2.6.0+cu124")
    with pytest.raises(TorchMismatchError) as caught:
        allocator.ensure_installed()
    message = str(caught.value)
    assert re.match(
        r"gpumemtrace was built for torch 2\.6\.0\+cu124, but torch 9\.9\.9\+cu130 is imported: "
        r".*pip install --force-reinstall",
        message,
    )
    assert "\n" not in message
    assert "gpumemtrace._torch_hook" not in sys.modules, "not even loaded"
