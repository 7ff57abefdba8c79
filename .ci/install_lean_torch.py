"""Install torch without NVIDIA's libraries into the environment of the running interpreter.

    .venv/bin/python .ci/install_lean_torch.py torch==2.6.0

A CUDA build of torch brings gigabytes of libraries that only a GPU needs. Under the simulated GPU
they are stood in for, so torch's own wheel, its pure-Python requirements and the CUDA headers are
enough to build and test everything. `import torch` alone fails in such an environment.
"""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cmake"))
from probe_torch import headers_requirement, read_assignments

LEFT_OUT = ("nvidia-", "cuda-", "triton")


def pip_install(*arguments: str) -> None:
    """Run pip in this environment, or end with its output and its status."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
    # Captured: pip lists every library that was left out as a conflict, and succeeds.
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    if run.returncode:
        print(run.stdout, run.stderr, sep="\n", file=sys.stderr)
        sys.exit(run.returncode)


def main() -> None:
    """Install the torch that the command line names (default: the newest)."""
    pip_install("--no-deps", *(sys.argv[1:] or ["torch"]))
    torch = importlib.metadata.distribution("torch")
    wanted = [line for line in torch.requires or () if "extra ==" not in line]
    # Metadata from before PEP 508 was settled writes "name (==1.0)".
    wanted = [re.sub(r"\((.*?)\)", r"\1", line) for line in wanted if not line.startswith(LEFT_OUT)]
    cuda = read_assignments(Path(str(torch.locate_file("torch/version.py")))).get("cuda")
    pip_install(*wanted, *([headers_requirement(cuda)] if cuda else []))


if __name__ == "__main__":
    main()
