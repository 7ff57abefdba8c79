"""The run record: what ran, where, with which versions and settings. Written into the trace.

JSON objects, of which later ones add to or replace the keys of earlier ones. Secrets stay out:
environment variables are recorded only by name (`ENVIRONMENT`), arguments that look like tokens
are masked.

Keys: ``gpumemtrace``, ``script``, ``argv``, ``cwd``, ``git_commit`` (of the script's folder; None =
not in a repository), ``python``, ``torch``, ``cuda``, ``driver``, ``host``, ``pid``, ``rank``,
``local_rank``, ``world_size``, ``phases``, ``device_sample_interval_ms``, ``environment``,
``devices`` (list of ``index, name, compute_capability, memory_bytes, sm_count``), ``allocator``
(``backend, settings``), ``simulated`` (None, or ``gpu, memory_bytes, compute_capability, sm_count,
approximations``), ``training`` (with automatic phases: see
`gpumemtrace.capture.training_record`).
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import socket
import sys
from pathlib import Path
from typing import Any

import gpumemtrace
from gpumemtrace.capture.output_path import script_name
from gpumemtrace.capture.rank import local_rank, rank, world_size
from gpumemtrace.confidential import record_without_paths

__all__ = [
    "at_end",
    "at_start",
    "describe_error",
    "devices",
    "git_commit",
    "late",
    "masked_arguments",
    "script_folder",
    "uncaught_error",
]

ENVIRONMENT = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "GROUP_RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NCCL_BUFFSIZE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_NVLS_ENABLE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "RANK",
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "TORCH_NCCL_AVOID_RECORD_STREAMS",
    "WORLD_SIZE",
)


def at_start(*, phases: str | None, confidential: bool = False) -> dict[str, Any]:
    """Return what is known before CUDA is up; asks CUDA nothing."""
    torch = sys.modules.get("torch")
    torch_version = getattr(torch, "version", None)
    record = {
        "gpumemtrace": gpumemtrace.__version__,
        "script": script_name(),
        "argv": masked_arguments(getattr(sys, "argv", [])),
        "cwd": _cwd(),
        "git_commit": git_commit(script_folder()),
        "python": platform.python_version(),
        "torch": getattr(torch_version, "__version__", None),
        "cuda": getattr(torch_version, "cuda", None),
        "driver": _driver_version(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "phases": phases,
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        "allocator": {"backend": None, "settings": _allocator_settings()},
        **late(),
    }
    return record_without_paths(record) if confidential else record


def at_end(
    reason: str, steps: int, error: dict[str, str] | None, *, confidential: bool
) -> dict[str, Any]:
    """Return what the file ends with; ``error``: see `uncaught_error`."""
    footer: dict[str, Any] = {"reason": reason, "steps": steps}
    if error is not None:
        footer["error"] = error
    return record_without_paths(footer) if confidential else footer


def late() -> dict[str, Any]:
    """Return what may become known, or grow, while the program runs."""
    return {
        "rank": rank(),
        "local_rank": local_rank(),
        "world_size": world_size(),
        "simulated": simulated(),
    }


def devices(torch: Any) -> dict[str, Any]:
    """Return what CUDA can tell once it is up. Makes no context on a device that has none."""
    cuda = torch.cuda
    found = []
    for index in range(cuda.device_count()):
        properties = cuda.get_device_properties(index)
        found.append(
            {
                "index": index,
                "name": properties.name,
                "compute_capability": f"{properties.major}.{properties.minor}",
                "memory_bytes": properties.total_memory,
                "sm_count": properties.multi_processor_count,
            }
        )
    return {
        "devices": found,
        "allocator": {
            "backend": cuda.get_allocator_backend(),
            "settings": _allocator_settings(),
        },
    }


def simulated() -> dict[str, Any] | None:
    """Return what the simulated GPU is and has approximated so far; None for a real one."""
    if "GPUMEMTRACE_SIMULATED" not in os.environ:
        return None
    from gpumemtrace.capture.simulate import read_report, simulated_gpu

    gpu = simulated_gpu()
    return None if gpu is None else {**gpu, "approximations": read_report()}


def uncaught_error() -> dict[str, str] | None:
    """Return what ends the program: the exception that nobody caught; None for an orderly end."""
    error = getattr(sys, "last_value", None)
    return describe_error(error) if isinstance(error, BaseException) else None


def describe_error(error: BaseException) -> dict[str, str]:
    """Return ``type``, and ``message`` (its first line) where that is about memory of the device.

    Other messages stay out: they may hold anything.
    """
    kind = type(error)
    described = {"type": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")}
    try:
        text = str(error)
    except Exception:  # somebody else's class
        return described
    if re.search(r"out of memory|CUDA|NCCL|CUBLAS|CUDNN", text, re.IGNORECASE):
        described["message"] = text.strip().partition("\n")[0][:300]
    return described


def masked_arguments(arguments: list[str]) -> list[str]:
    """Return ``arguments`` with ``***`` for what looks like a secret."""
    masked = []
    secret_follows = False
    for argument in arguments:
        option, equals, value = argument.partition("=")
        is_secret = bool(_SECRET_OPTION.search(option)) and option.startswith("-")
        if secret_follows and not argument.startswith("-"):
            masked.append("***")
        elif equals and (is_secret or _SECRET_VALUE.fullmatch(value)):
            masked.append(f"{option}=***")
        elif _SECRET_VALUE.fullmatch(argument):
            masked.append("***")
        else:
            masked.append(_PASSWORD_IN_URL.sub(r"\1***@", argument))
        secret_follows = is_secret and not equals
    return masked


_SECRET_OPTION = re.compile(
    r"(^|[-_.])(token|secrets?|passwords?|passwd|passphrase|credentials?|auth|(api|access|private|"
    r"secret)[-_]?keys?)$",  # not --max-tokens
    re.IGNORECASE,
)
# Prefixes of well-known services; otherwise long and of letters in both cases and digits.
_SECRET_VALUE = re.compile(
    r"(hf_|sk-|sk_|ghp_|gho_|github_pat_|glpat-|xox[bap]-|AKIA|ya29\.|eyJ)[\w.+/=-]{8,}"
    r"|(?=[^A-Z]*[A-Z])(?=[^a-z]*[a-z])(?=\D*\d)[A-Za-z0-9_-]{32,}"
)
_PASSWORD_IN_URL = re.compile(r"(\w+://[^/@\s:]*:)[^/@\s]+@")


def git_commit(folder: Path) -> str | None:
    """Return the commit checked out around ``folder``, by reading ``.git``; None outside one."""
    try:
        for parent in (folder, *folder.parents):
            git = parent / ".git"
            if git.exists():
                return _commit_of(git)
    except (OSError, ValueError):  # a repository that we can't read is as good as none
        pass
    return None


def _commit_of(git: Path) -> str | None:
    if git.is_file():  # a worktree or submodule: "gitdir: <path>"
        git = git.parent / git.read_text().partition("gitdir:")[2].strip()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head
    ref = head.removeprefix("ref: ")
    common = git / "commondir"
    folders = [git, git / common.read_text().strip()] if common.exists() else [git]
    for folder in folders:
        if (folder / ref).is_file():
            return (folder / ref).read_text().strip()
    packed = folders[-1] / "packed-refs"
    if packed.is_file():
        for line in packed.read_text().splitlines():
            if line.endswith(f" {ref}"):
                return line.partition(" ")[0]
    return None


def _allocator_settings() -> str | None:
    # torch 2.9 renamed it; the new name wins there, and older ones don't read it.
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if os.environ.get(name):
            return os.environ[name]
    return None


def _driver_version() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"\b(\d{3,}\.\d+(\.\d+)?)\b", text)
    return found[1] if found else None


def script_folder() -> Path:
    """Return the folder of the script that runs; the working directory where there is none.

    Neither a launcher of the environment (pytest, a notebook's kernel) is one, nor a module of it.
    """
    with contextlib.suppress(OSError, ValueError):
        script = Path(sys.argv[0] if getattr(sys, "argv", None) else "")
        if script.is_file() and not script.absolute().is_relative_to(sys.prefix):
            return script.resolve().parent
    return Path(_cwd())


def _cwd() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # deleted under us
        return ""
