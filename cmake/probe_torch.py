"""Say, as one JSON object, which torch the running interpreter would import, without importing it.

Run by CMake as ``python -I probe_torch.py``: isolated mode ignores the overlay of a build-isolated
pip, so this sees the environment that the package is being installed into. Importing torch would
need every CUDA library to be present; reading its files does not.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sysconfig
from pathlib import Path


def find_cuda_include(site_dirs: list[Path], major: str) -> tuple[str, list[str]]:
    """The folder that holds CUDA headers of ``major``, and every folder that was looked into."""
    candidates = [site / "nvidia" / f"cu{major}" / "include" for site in site_dirs]
    candidates += [site / "nvidia" / "cuda_runtime" / "include" for site in site_dirs]
    candidates += [
        Path(os.environ[name]) / "include"
        for name in ("CUDA_HOME", "CUDA_PATH")
        if os.environ.get(name)
    ]
    candidates += [Path(f"/usr/local/cuda-{major}/include"), Path("/usr/local/cuda/include")]
    for folder in candidates:
        header = folder / "cuda_runtime_api.h"
        if not header.is_file() or not (folder / "cuda.h").is_file():
            continue
        found = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", header.read_text(errors="replace"))
        if found and found[1][:-3] == major:
            return str(folder), [str(c) for c in candidates]
    return "", [str(c) for c in candidates]


def probe() -> dict[str, object]:
    """What CMake needs to know; ``found`` is false with a ``why`` when the hook can't be built."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return {"found": False, "why": "torch is not installed"}
    torch = Path(spec.origin).parent
    version_file = (torch / "version.py").read_text()
    version = re.search(r"__version__ = '([^']+)'", version_file)
    cuda = re.search(r"cuda: Optional\[str\] = '([^']+)'", version_file)
    if version is None:
        return {"found": False, "why": f"{torch}/version.py names no version"}
    if cuda is None:
        return {"found": False, "why": f"torch {version[1]} is not a CUDA build"}
    major = cuda[1].split(".")[0]
    purelib = Path(sysconfig.get_paths()["purelib"])
    include, looked = find_cuda_include([torch.parent, purelib], major)
    if not include:
        return {
            "found": False,
            "why": f"torch {version[1]} is there, but no CUDA {major} headers (cuda_runtime_api.h and "
            f"cuda.h) in {', '.join(looked)}; pip install the nvidia-cuda-runtime wheel of CUDA {major}",
        }
    config = (torch / "share/cmake/Torch/TorchConfig.cmake").read_text()
    abi = re.search(r"_GLIBCXX_USE_CXX11_ABI=(\d)", config)
    return {
        "found": True,
        "root": str(torch),
        "version": version[1],
        "cuda": cuda[1],
        "cuda_include": include,
        "cxx11_abi": abi[1] if abi else "1",
    }


print(json.dumps(probe()))
