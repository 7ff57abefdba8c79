"""What tells where a program lies, taken out of texts: paths of folders, and the host.

One set of rules, for a recording (``--confidential``) and for a trace that there is already; that
for the files of call sites has a native twin, ``without_folders`` in csrc/torch/file_names.h.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

__all__ = ["file_without_folders", "record_without_paths", "text_without_folders"]

_PACKAGES = re.compile(r".*/(?:site|dist)-packages/", re.DOTALL)
_OWN = re.compile(r".*/(gpumemtrace/(?:capture|cli)/[^/]*)", re.DOTALL)
# Folders up to a name: all of them in an argument, those of absolute paths in any other text. They
# begin behind one of these, so that each stretch between two is looked at once.
_AROUND = r"\s:=,;'\"()\[\]{}<>"
_FOLDERS = rf"(?:[^/{_AROUND}]+/+)*(?=[^/{_AROUND}])"
_ANY_FOLDERS = re.compile(rf"(?<![^{_AROUND}])[^/{_AROUND}]*/+{_FOLDERS}")
_ABSOLUTE_FOLDERS = re.compile(rf"(?<![^{_AROUND}])~?/+{_FOLDERS}")
_IS_PATH = re.compile(r"(?:~|\.{0,2})/")


def file_without_folders(file: str) -> str:
    """Return what is kept of the file of a call site.

    Behind ``site-packages`` all, else the name; with as much before it as tells that the file is
    PyTorch's, or ours (see `gpumemtrace.sites.Frame`).
    """
    if found := _PACKAGES.match(file):
        return file[found.end() :]
    if found := _OWN.fullmatch(file):
        return found[1]
    folder, slash, name = file.rpartition("/")
    if not slash:
        return file
    for part in reversed(folder.split("/")):
        if part == "torch" or part.startswith("torchinductor_"):  # with the user's name behind it
            return f"{part.partition('_')[0]}/{name}"
    return name


def text_without_folders(text: str) -> str:
    """Return a text without the folders of absolute paths in it."""
    return _ABSOLUTE_FOLDERS.sub("", text)


def record_without_paths(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run record without what tells where the program lies.

    Neither the working directory nor the host is kept, and of a path among the arguments, or of an
    absolute one anywhere, the last part.
    """
    kept: dict[str, Any] = {key: _without_folders(value) for key, value in record.items()}
    kept |= {key: None for key in ("cwd", "host") if key in record}
    if isinstance(arguments := record.get("argv"), list):
        kept["argv"] = [_argument_without_folders(str(argument)) for argument in arguments]
    return kept


def _without_folders(value: Any) -> Any:
    if isinstance(value, str):
        return text_without_folders(value)
    if isinstance(value, Mapping):
        return {_without_folders(key): _without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_folders(inner) for inner in value]
    return value


def _argument_without_folders(argument: str) -> str:
    option, equals, value = argument.partition("=")
    if not equals or "/" in option:
        option, equals, value = "", "", argument
    # A path as a whole may have any character in it.
    is_path = _IS_PATH.match(value) and "\n" not in value
    kept = PurePosixPath(value).name if is_path else _ANY_FOLDERS.sub("", value)
    return option + equals + kept
