"""gpumemtrace.build_info: what this build is for, and what to type when that doesn't fit."""

import importlib.machinery
import json
import shlex
import sys
from pathlib import Path

import pytest

from gpumemtrace import build_info
from gpumemtrace.errors import InstallError


@pytest.fixture
def record_as(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes build_info read a given torch record."""

    def set_record(torch: dict[str, object]) -> None:
        (tmp_path / "_build_info.json").write_text(json.dumps({"torch": torch}))
        spec = importlib.machinery.ModuleSpec("gpumemtrace._core", None)
        spec.origin = str(tmp_path / "_core.so")
        monkeypatch.setattr(build_info.importlib.util, "find_spec", lambda name: spec)
        build_info._torch_record.cache_clear()

    yield set_record
    build_info._torch_record.cache_clear()


def test_this_build_has_a_record() -> None:
    assert (build_info.torch_version() is None) == (build_info.why_no_hook() is not None)


def test_with_a_hook(record_as) -> None:
    record_as({"found": True, "version": "2.14.1+cu130"})
    assert build_info.torch_version() == "2.14.1+cu130"
    assert build_info.why_no_hook() is None
    assert build_info.how_to_fix() == build_info.how_to_rebuild()


def test_without_a_hook(record_as) -> None:
    remedy = "nvidia-cuda-runtime==13.0.*"
    record_as({"found": False, "why": "no headers were there", "remedy": remedy})
    assert build_info.torch_version() is None
    assert build_info.why_no_hook() == "no headers were there"
    pip = f"{shlex.quote(sys.executable)} -m pip install"
    assert build_info.how_to_fix().startswith(f"{pip} {remedy} && {pip} --force-reinstall ")
    assert build_info.how_to_fix("torch").startswith(f"{pip} torch && {pip} --force-reinstall ")


def installed_as(
    monkeypatch: pytest.MonkeyPatch, direct_url: str | None, installer: str = "pip"
) -> None:
    """Make the metadata of the installed gpumemtrace say where it came from."""
    files = {"direct_url.json": direct_url, "INSTALLER": f"{installer}\n"}

    class Distribution:
        def read_text(self, name: str) -> str | None:
            return files.get(name)

    monkeypatch.setattr(build_info.importlib.metadata, "distribution", lambda name: Distribution())


@pytest.mark.parametrize(("editable", "expected"), [(False, ""), (True, "-e ")])
def test_rebuild_names_the_source_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, editable: bool, expected: str
) -> None:
    folder = tmp_path / "my source"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    direct_url = {"url": folder.as_uri(), "dir_info": {"editable": editable}}
    installed_as(monkeypatch, json.dumps(direct_url))
    assert build_info.how_to_rebuild().endswith(f" {expected}'{folder}'")


@pytest.mark.parametrize(
    "direct_url",
    [None, '{"url": "file:///nowhere/at/all", "dir_info": {}}', '{"url": "https://x/y.whl"}'],
)
def test_rebuild_names_the_package_when_the_source_is_gone(
    monkeypatch: pytest.MonkeyPatch, direct_url: str | None
) -> None:
    installed_as(monkeypatch, direct_url)
    assert build_info.how_to_rebuild().endswith(" --no-binary gpumemtrace gpumemtrace")


def test_rebuild_with_uv_names_this_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_as(monkeypatch, None, installer="uv")
    command = build_info.how_to_rebuild()
    python = shlex.quote(sys.executable)
    assert command.startswith(f"uv pip install --python {python} --reinstall ")
    assert f" -C cmake.define.GPUMEMTRACE_TORCH_PYTHON={python} " in command


def test_source_folder_imported_by_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_info.importlib.util, "find_spec", lambda name: None)
    build_info._torch_record.cache_clear()
    with pytest.raises(InstallError, match="pip install"):
        build_info.torch_version()
