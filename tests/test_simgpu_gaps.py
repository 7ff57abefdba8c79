"""Never silently wrong: what the simulated GPU refuses or approximates is told by name."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from simgpu import result_of, run_simulated, skip_without_simgpu

from gpumemtrace.capture import simulate
from gpumemtrace.capture.gpu_profiles import find_profile
from gpumemtrace.errors import InstallError, TorchMismatchError

pytestmark = pytest.mark.simgpu


def report_after(code: str, **options: object) -> dict[str, dict[str, object]]:
    """Run ``code`` and return the report by name."""
    reading = "import json\nfrom gpumemtrace.capture.simulate import read_report\n"
    done = run_simulated(reading + code + "\nprint(json.dumps(read_report()))\n", **options)
    return {entry["name"]: entry for entry in result_of(done)}


def test_the_standing_lines_are_always_there() -> None:
    report = report_after("import torch; torch.cuda.init()")
    assert set(report) == {"kernels and BLAS", "device memory outside the allocator"}
    assert all(entry["calls"] is None and entry["what"] for entry in report.values())


@pytest.mark.parametrize(
    ("card", "figure"),
    [({"gpu": "h100"}, "is a fixed figure, 526.8 MiB;"), ({"memory": "24GiB"}, "takes none here,")],
)
def test_what_the_context_takes_is_told(card: dict[str, str], figure: str) -> None:
    report = report_after("import torch; torch.cuda.init()", **card)
    what = report["device memory outside the allocator"]["what"]
    assert str(what).startswith(f"the context {figure}")


def test_linear_algebra_is_refused_and_counted() -> None:
    report = report_after("""
import torch
refused = 0
for _ in range(3):
    try:
        torch.linalg.solve(torch.randn(8, 8, device="cuda"), torch.randn(8, device="cuda"))
    except RuntimeError:
        refused += 1
assert refused == 3, refused
""")
    name, entry = next((n, e) for n, e in report.items() if n.startswith("cusolver"))
    assert entry["calls"] >= 1, name
    assert "refused" in entry["what"]


def test_a_refused_call_is_named_on_stderr_once() -> None:
    done = run_simulated("""
        import torch
        for _ in range(2):
            try:
                torch.linalg.solve(torch.randn(8, 8, device="cuda"), torch.randn(8, device="cuda"))
            except RuntimeError:
                pass
    """)
    lines = [line for line in done.stderr.splitlines() if line.startswith("gpumemtrace simulate:")]
    assert len(lines) == len(set(lines)) >= 1
    assert "cusolver" in lines[0]


def test_what_depends_on_data_is_counted() -> None:
    report = report_after("""
import torch
x = torch.randn(100, device="cuda")
assert x.nonzero().numel() == 0
assert x[x > 0].numel() == 0
assert torch.unique(x).numel() == 0
assert (x + 1).sum().item() == 0
""")
    assert report["nonzero, unique, boolean masks"]["calls"] >= 3
    assert report["values read from the device"]["calls"] >= 4


def test_what_was_copied_there_reads_back_until_a_kernel_ran() -> None:
    """A stale count or flag must never come back; what nobody can have changed may."""
    done = run_simulated("""
        import json
        import torch
        fresh = torch.tensor([3, 1, 2], device="cuda").tolist()
        x = torch.tensor([3, 1, 2], device="cuda")
        moved = x.clone()
        torch.add(x, 1)
        print(json.dumps([fresh, x.tolist(), moved.tolist()]))
    """)
    assert result_of(done) == [[3, 1, 2], [0, 0, 0], [0, 0, 0]]


def test_fft_is_approximated() -> None:
    report = report_after("""
import torch
torch.fft.rfft(torch.randn(64, 1024, device="cuda"))
""")
    assert report["cuFFT plan"]["calls"] == 1


def test_the_report_version_moves_only_with_new_names() -> None:
    done = run_simulated("""
        import ctypes, json
        library = ctypes.CDLL(None)
        library.gpumemtrace_sim_report_version.restype = ctypes.c_uint64
        note = lambda name: library.gpumemtrace_sim_note(name, b'a "quoted" \\\\ reason')
        versions = [library.gpumemtrace_sim_report_version()]
        for name in (b"one", b"one", b"two"):
            note(name)
            versions.append(library.gpumemtrace_sim_report_version())
        from gpumemtrace.capture.simulate import read_report
        print(json.dumps([[v - versions[0] for v in versions], read_report()[-2:]]))
    """)
    versions, entries = result_of(done)
    assert versions == [0, 1, 1, 2]
    assert entries[0] == {"name": "one", "calls": 2, "what": 'a "quoted" \\ reason'}


def test_the_report_says_when_it_was_cut() -> None:
    done = run_simulated("""
        import ctypes, json
        report = ctypes.CDLL(None).gpumemtrace_sim_report
        small = ctypes.create_string_buffer(10)
        needed = report(small, ctypes.c_size_t(10))
        print(json.dumps([needed, len(small.value), report(None, ctypes.c_size_t(0))]))
    """)
    needed, length, asked = result_of(done)
    assert needed == asked > 100
    assert length == 9


def test_without_the_library_nothing_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMEMTRACE_SIMULATED", '{"gpu": "left over"}')
    assert simulate.simulated_gpu() is None
    assert simulate.read_report() == []


def test_a_process_knows_what_it_runs_on() -> None:
    done = run_simulated("""
        import json
        from gpumemtrace.capture.simulate import simulated_gpu
        print(json.dumps(simulated_gpu()))
    """)
    profile = find_profile("h200")
    assert result_of(done) == {
        "gpu": profile.name,
        "memory_bytes": profile.memory_bytes,
        "compute_capability": "9.0",
        "sm_count": 132,
    }


def test_the_environment_keeps_what_was_there() -> None:
    skip_without_simgpu()
    base = {"LD_PRELOAD": "/lib/mine.so", "LD_LIBRARY_PATH": "/a:/b", "HOME": "/nowhere/me"}
    once = simulate.simulated_environment(find_profile("l4"), base=base)
    twice = simulate.simulated_environment(find_profile("l4"), base=once)
    assert once["HOME"] == "/nowhere/me"
    assert once["LD_PRELOAD"].endswith("libgpumemtrace_simgpu.so:/lib/mine.so")
    assert once["LD_LIBRARY_PATH"].endswith("simgpu_lib:/a:/b")
    assert twice == once
    assert "PYTORCH_CUDA_ALLOC_CONF" not in once
    with pytest.raises(InstallError, match="1 to 16"):
        simulate.simulated_environment(find_profile("l4"), devices=17)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GPUMEMTRACE_SIM_MEMORY_BYTES", "lots"),
        ("GPUMEMTRACE_SIM_DEVICES", "-1"),
        ("GPUMEMTRACE_SIM_COMPUTE_CAPABILITY", "nine"),
        ("GPUMEMTRACE_SIM_CONTEXT_BYTES", str(1 << 50)),
    ],
)
def test_a_variable_that_makes_no_sense_leaves_no_device(variable: str, value: str) -> None:
    done = run_simulated("import torch; print(torch.cuda.device_count())", env={variable: value})
    assert result_of(done) == 0
    assert f"{variable}={value} makes no sense" in done.stderr


def test_every_symbol_torch_imports_is_there() -> None:
    """Also under RTLD_NOW: no call of torch's libraries into CUDA is left without an answer."""
    done = run_simulated("import torch; print(1)", env={"LD_BIND_NOW": "1"})
    assert result_of(done) == 1


def test_other_programs_are_not_disturbed() -> None:
    skip_without_simgpu()
    environment = simulate.simulated_environment(find_profile("h200"))
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import os; os._exit(7)"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
    assert os.environ.get("LD_PRELOAD") != environment["LD_PRELOAD"]


def test_functions_looked_up_by_name_are_those_written_for_it() -> None:
    """Driver functions carry a version (_v2) that whoever asks by name leaves out."""
    done = run_simulated("""
        import ctypes, json
        cuda = ctypes.CDLL(None)
        def find(name):
            found = ctypes.c_void_p()
            where = ctypes.byref(found), 12000, ctypes.c_ulong(0), None
            status = cuda.cuGetProcAddress_v2(name, *where)
            return status, found.value
        def address(name):
            return ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value
        print(json.dumps([
            find(b"cuMemGetAddressRange") == (0, address("cuMemGetAddressRange_v2")),
            find(b"cuCtxPushCurrent") == (0, address("cuCtxPushCurrent_v2")),
            find(b"cuMemCreate") == (0, address("cuMemCreate")),
            find(b"cuNoSuchFunction"),
        ]))
    """)
    assert result_of(done) == [True, True, True, [500, None]]


def test_another_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_simgpu()
    monkeypatch.setattr(simulate, "version", lambda _: "1.13.1+cu117")
    with pytest.raises(TorchMismatchError, match=r"torch 1\.13\.1 is installed: .*pip install"):
        simulate.simulated_environment(find_profile("l4"))
