"""cmake/probe_torch.py: which torch an environment would import, seen without importing it."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PROBE = Path(__file__).parent.parent / "cmake" / "probe_torch.py"

CUDA_VERSION_PY = """\
from typing import Optional
__version__ = '2.99.1+cu130'
cuda: Optional[str] = '13.0'
hip: Optional[str] = None
"""


class Environment:
    """A virtual environment with a made-up torch, and what the probe says of it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.python = folder / "bin" / "python"
        minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = folder / "lib" / minor / "site-packages"

    def add_torch(self, version_py: str, config: str = "") -> None:
        write(self.site / "torch" / "__init__.py", "raise SystemExit('the probe imported torch')")
        write(self.site / "torch" / "version.py", version_py)
        write(self.site / "torch/share/cmake/Torch/TorchConfig.cmake", config)

    def add_headers(self, folder: str, cudart_version: int) -> Path:
        include = self.site / folder / "include"
        write(include / "cuda.h", "")
        write(include / "cuda_runtime_api.h", f"#define CUDART_VERSION  {cudart_version}\n")
        return include

    def probe(self, **variables: str) -> dict[str, object]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "PYTHON"))}
        text = subprocess.run(
            [self.python, "-I", PROBE],
            env=environment | variables,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        answer: dict[str, object] = json.loads(text)
        return answer


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "env")


def test_without_torch(environment: Environment) -> None:
    answer = environment.probe()
    assert answer["found"] is False
    assert answer["why"] == f"torch was not installed in {environment.python.parent.parent}"
    assert answer["remedy"] == "torch"


def test_cuda_build(environment: Environment) -> None:
    environment.add_torch(CUDA_VERSION_PY)
    include = environment.add_headers("nvidia/cu13", 13000)
    assert environment.probe() == {
        "found": True,
        "root": str(environment.site / "torch"),
        "version": "2.99.1+cu130",
        "cuda": "13.0",
        "cuda_include": str(include),
        "cxx11_abi": "1",
        "pybind11_build_abi": "",
    }


def test_old_string_abi(environment: Environment) -> None:
    environment.add_torch(CUDA_VERSION_PY, config="set(F '-D_GLIBCXX_USE_CXX11_ABI=0')")
    environment.add_headers("nvidia/cu13", 13000)
    assert environment.probe()["cxx11_abi"] == "0"


@pytest.mark.parametrize(
    ("lines", "kind"),
    [("cuda = None\n", "a CPU build"), ("cuda = None\nhip = '6.4'\n", "a ROCm build")],
)
def test_other_builds(environment: Environment, lines: str, kind: str) -> None:
    environment.add_torch("__version__ = '2.99.1'\n" + lines)
    answer = environment.probe()
    assert answer["found"] is False
    assert f"torch 2.99.1 was {kind}" in str(answer["why"])


@pytest.mark.parametrize("cudart_version", [None, 12040])
def test_headers_missing_or_of_another_cuda(
    environment: Environment, cudart_version: int | None
) -> None:
    environment.add_torch(CUDA_VERSION_PY.replace("13.0", "99.0"))  # on no machine's disk
    if cudart_version:
        environment.add_headers("nvidia/cuda_runtime", cudart_version)
    answer = environment.probe(CUDA_HOME="/nonexistent/cuda")
    assert answer["found"] is False
    assert "no headers of CUDA 99" in str(answer["why"])
    assert "/nonexistent/cuda/include" in str(answer["why"])
    assert answer["remedy"] == "nvidia-cuda-runtime==99.0.*"


def test_torch_through_a_pth_file_and_headers_elsewhere(
    environment: Environment, tmp_path: Path
) -> None:
    other = Environment(tmp_path / "other")
    other.add_torch(CUDA_VERSION_PY)
    write(environment.site / "other.pth", f"{other.site}\n")
    include = environment.add_headers("nvidia/cu13", 13000)
    answer = environment.probe()
    assert answer["root"] == str(other.site / "torch")
    assert answer["cuda_include"] == str(include)


@pytest.mark.parametrize(
    ("internals", "expected"),
    [
        (b"__pybind11_internals_v4_gcc_libstdcpp_cxxabi1011__", "_cxxabi1011"),
        (b"__pybind11_internals_v12_system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_1__", ""),
        (b"no pybind11 in here", ""),
    ],
)
def test_the_compiler_that_torch_was_built_with(
    environment: Environment, internals: bytes, expected: str
) -> None:
    environment.add_torch(CUDA_VERSION_PY)
    environment.add_headers("nvidia/cu13", 13000)
    library = environment.site / "torch" / "lib" / "libtorch_python.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\0ELF\0" * 1000 + internals + b"\0" * 1000)
    assert environment.probe()["pybind11_build_abi"] == expected
