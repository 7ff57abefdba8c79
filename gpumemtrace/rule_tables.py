"""Rules that users write as TOML tables, checked word by word."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gpumemtrace.errors import RulesError
from gpumemtrace.units import parse_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["check_keys", "choice", "load_toml", "parse_tables", "size_bytes", "text", "whole"]

Result = TypeVar("Result")


def load_toml(path: str | os.PathLike[str], parse: Callable[[Mapping[str, Any]], Result]) -> Result:
    """Return what ``parse`` makes of a TOML file. Raises `OSError`; `RulesError` with its name."""
    with Path(path).open("rb") as file:
        try:
            tables = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise RulesError(f"{os.fspath(path)}: not a TOML file: {error}") from None
    try:
        return parse(tables)
    except RulesError as error:
        raise RulesError(f"{os.fspath(path)}: {error}") from None


def parse_tables(
    tables: Mapping[str, Any], kinds: Mapping[str, Callable[[dict[str, Any]], Result]]
) -> list[Result]:
    """Parse each table of the lists ``[[kind]]``; a `ValueError` becomes one that tells which."""
    expected = " or ".join(f"[[{kind}]]" for kind in kinds)
    if unknown := [key for key in tables if key not in kinds]:
        raise RulesError(f"{unknown[0]!r} is no kind of rule: write {expected}")
    parsed = []
    for kind, parse in kinds.items():
        entries = tables.get(kind, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise RulesError(f"{kind!r} must be a list of tables: write [[{kind}]]")
        for number, entry in enumerate(entries, start=1):
            try:
                parsed.append(parse(entry))
            except ValueError as error:
                raise RulesError(f"[[{kind}]] {number}: {error}") from None
    return parsed


def check_keys(
    entry: Mapping[str, Any], known: tuple[str, ...], *, needed: str, example: str = '"1 GiB"'
) -> None:
    """Raise `ValueError` for a key that is not ``known``, or if ``needed`` is missing."""
    for key in entry:
        if key not in known:
            raise ValueError(f"{key!r} is not known: known are {', '.join(known)}")
    if needed not in entry:
        raise ValueError(f"{needed!r} is missing, such as {needed} = {example}")


def size_bytes(entry: Mapping[str, Any], key: str) -> int:
    """Return a size in bytes: a whole number, or a text such as ``24 GiB``."""
    value = entry[key]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        return parse_bytes(value)
    raise ValueError(f'{key} must be a size such as "24 GiB", not {value!r}')


def text(entry: Mapping[str, Any], key: str) -> str | None:
    """Return a text, None where there is none."""
    value = entry.get(key)
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{key} must be a text, not {value!r}")


def choice(entry: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str | None:
    """Return a text that is one of ``choices``, None where there is none."""
    value = text(entry, key)
    if value is not None and value not in choices:
        raise ValueError(f"{key} is {value!r}: it can be {', '.join(choices)}")
    return value


def whole(entry: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number from 0 on, None where there is none."""
    value = entry.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ValueError(f"{key} must be a whole number from 0 on, not {value!r}")
