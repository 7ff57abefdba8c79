"""What this copy of gpumemtrace was built for, and what to type when that doesn't fit.

CMake leaves ``_build_info.json`` beside the native module: the torch that it found in the
environment (see ``cmake/probe_torch.py``), or why there is no torch hook in this build.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
import shlex
import sys
import urllib.parse
from pathlib import Path
from typing import Any

from gpumemtrace.errors import InstallError

__all__ = ["how_to_fix", "how_to_rebuild", "no_torch", "torch_version", "why_no_hook"]


def torch_version() -> str | None:
    """Return the torch that the hook was built for (``"2.14.1+cu130"``), None without a hook."""
    version: str | None = _torch_record().get("version")
    return version


def why_no_hook() -> str | None:
    """Return why this build has no torch hook, as a clause in the past tense; None when it has one.

    For example ``"torch was not installed in /path/to/venv"``: the state at the time of the build,
    which need not be that of today.
    """
    why: str | None = _torch_record().get("why")
    return why


def how_to_rebuild() -> str:
    """Return the shell command that builds gpumemtrace again, for the torch that is there now."""
    python = shlex.quote(sys.executable)
    if _is_from_uv():
        # uv builds in an environment of its own, without the torch of this one.
        setting = f"-C cmake.define.GPUMEMTRACE_TORCH_PYTHON={python}"
        return f"{_pip_install()} --reinstall --no-deps --no-cache {setting} {_source()}"
    return f"{_pip_install()} --force-reinstall --no-deps --no-cache-dir {_source()}"


def how_to_fix(missing: str | None = None) -> str:
    """Return the shell command that brings what is missing, then builds again.

    ``missing`` is what to give to ``pip install``, such as ``"torch"``; by default what this build
    lacked, unless it was torch and one has been installed since.
    """
    remedy = _torch_record().get("remedy") if missing is None else missing
    if remedy is None or (missing is None and remedy == "torch" and _is_installed("torch")):
        return how_to_rebuild()
    return f"{_pip_install()} {remedy} && {how_to_rebuild()}"


def no_torch() -> str:
    """Return what to say where torch is not installed."""
    return f"torch is not installed for {sys.executable}: {how_to_fix('torch')}"


@functools.cache
def _torch_record() -> dict[str, Any]:
    """Return what CMake's probe found: ``found``, then ``version, cuda, …`` or ``why, remedy``.

    Raises `InstallError` when Python imported the source folder instead of an installed package.
    """
    native = importlib.util.find_spec("gpumemtrace._core")
    if native is None or native.origin is None:
        raise InstallError(
            f"{Path(__file__).parent} is a source folder without its native part: "
            f"{_pip_install()} {shlex.quote(str(Path(__file__).parent.parent))}, and run from "
            "another folder"
        )
    file = Path(native.origin).with_name("_build_info.json")
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["torch"]
    return record


def _pip_install() -> str:
    python = shlex.quote(sys.executable)
    return f"uv pip install --python {python}" if _is_from_uv() else f"{python} -m pip install"


def _is_from_uv() -> bool:
    """Return whether uv installed this copy (its environments have no pip)."""
    return (_metadata("INSTALLER") or "").strip() == "uv"


def _metadata(file: str) -> str | None:
    """Return a file of this copy's metadata, None where there is none."""
    try:
        return importlib.metadata.distribution("gpumemtrace").read_text(file)
    except importlib.metadata.PackageNotFoundError:
        return None


def _source() -> str:
    """Return what to give to pip: the folder that this copy was installed from, else the name."""
    text = _metadata("direct_url.json")
    origin = json.loads(text) if text else {}
    folder = Path(urllib.parse.unquote(urllib.parse.urlsplit(origin.get("url", "")).path))
    if "dir_info" in origin and (folder / "pyproject.toml").is_file():
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return editable + shlex.quote(str(folder))
    # A wheel somebody built elsewhere knows their torch, not this one.
    return "--no-binary gpumemtrace gpumemtrace"


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
