"""Say, as one JSON object, which torch the running interpreter would import, without importing it.

Run by CMake as ``python -I probe_torch.py``: isolated mode ignores the overlay of a build-isolated
pip, so this sees the environment that the package is being installed into. Importing torch would
need every CUDA library to be present; reading its files does not.

When the hook can be built, ``found`` is true and the object holds ``root, version, cuda,
cuda_include, cxx11_abi, pybind11_build_abi``. Otherwise ``why`` is a clause in the past tense
(people read it later, from the build record) and ``remedy`` what to give to ``pip install``.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import mmap
import os
import re
import sys
from pathlib import Path

Result = dict[str, object]


def probe() -> Result:
    """Look for a CUDA build of torch, and for the CUDA headers that go with it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return not_found(f"torch was not installed in {sys.prefix}", remedy="torch")
    torch = Path(spec.origin).parent
    facts = read_assignments(torch / "version.py")
    version, cuda = facts.get("__version__"), facts.get("cuda")
    if not version:
        return not_found(f"{torch}/version.py named no version", remedy="--force-reinstall torch")
    if not cuda:
        kind = "a ROCm build" if facts.get("hip") else "a CPU build"
        return not_found(
            f"torch {version} was {kind}, and tracing needs a CUDA build",
            remedy="--force-reinstall torch",
        )
    major = cuda.split(".")[0]
    folders = include_folders(major)
    include = next((f for f in folders if cuda_major_of(f) == major), None)
    if include is None:
        return not_found(
            f"torch {version} was there, but no headers of CUDA {major} (cuda.h and "
            f"cuda_runtime_api.h) in any of: {', '.join(map(str, folders))}",
            remedy=headers_requirement(cuda),
        )
    return {
        "found": True,
        "root": str(torch),
        "version": version,
        "cuda": cuda,
        "cuda_include": str(include),
        "cxx11_abi": cxx11_abi_of(torch),
        "pybind11_build_abi": pybind11_build_abi_of(torch),
    }


def not_found(why: str, *, remedy: str) -> Result:
    """Return the result for an environment in which the hook can't be built."""
    return {"found": False, "why": why, "remedy": remedy}


def read_assignments(file: Path) -> dict[str, str]:
    """Return the string constants that a Python file assigns to module-level names."""
    found = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found.update({t.id: value.value for t in targets if isinstance(t, ast.Name)})
    return found


def include_folders(major: str) -> list[Path]:
    """Return where CUDA's headers may lie: NVIDIA's wheels, then variables, then the system."""
    # Any entry: a .pth file may bring torch in from another environment than its headers.
    sites = [Path(entry) for entry in sys.path if entry]
    wheels = [site / "nvidia" / name for site in sites for name in (f"cu{major}", "cuda_runtime")]
    named = [Path(os.environ[n]) for n in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(n)]
    conda = [Path(sys.prefix, "targets", "x86_64-linux"), Path(sys.prefix)]
    system = [Path(f"/usr/local/cuda-{major}"), Path("/usr/local/cuda"), Path("/usr")]
    # A wheel's folder that isn't there says nothing to the reader of `why`: leave it out.
    wheels = [folder for folder in wheels if folder.is_dir()]
    return [folder / "include" for folder in [*wheels, *named, *conda, *system]]


def headers_requirement(cuda: str) -> str:
    """Return what to give to pip for the headers of a CUDA version such as "12.4"."""
    major = cuda.split(".")[0]
    package = "nvidia-cuda-runtime" if int(major) >= 13 else f"nvidia-cuda-runtime-cu{major}"
    return f"{package}=={cuda}.*"


def cuda_major_of(include: Path) -> str | None:
    """Return the major version of the CUDA headers in a folder, None when they aren't all there."""
    header = include / "cuda_runtime_api.h"
    if not header.is_file() or not (include / "cuda.h").is_file():
        return None
    text = header.read_text(encoding="utf-8", errors="replace")
    found = re.search(r"#define\s+CUDART_VERSION\s+(\d+)\d{3}\b", text)
    return found[1] if found else None


def cxx11_abi_of(torch: Path) -> str:
    """Return "0" where torch was built with the old std::string (pip's wheels up to 2.6)."""
    config = torch / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    text = config.read_text(encoding="utf-8") if config.is_file() else ""
    found = re.search(r"_GLIBCXX_USE_CXX11_ABI=(\d)", text)
    return found[1] if found else "1"


def pybind11_build_abi_of(torch: Path) -> str:
    """Return what stands for torch's compiler in the name by which pybind11 shares types.

    Up to pybind11 2.13 modules of two versions of gcc do not know each other's types, unless one
    says it is as the other (as `torch.utils.cpp_extension` does). "" where it does not matter.
    """
    library = torch / "lib" / "libtorch_python.so"
    if not library.is_file():
        return ""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        found = re.search(rb"__pybind11_internals_v\d+_gcc_libstdcpp(_cxxabi\d+)__", text)
        return found[1].decode() if found else ""


if __name__ == "__main__":
    print(json.dumps(probe()))
