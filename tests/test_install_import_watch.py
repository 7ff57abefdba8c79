"""import_watch: callbacks at the right moment, and nothing left behind."""

from __future__ import annotations

import importlib
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumemtrace.capture import import_watch
from gpumemtrace.capture.import_watch import forget, when_imported


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def make(name: str, source: str = "") -> str:
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        if "." in name:
            (path.parent / "__init__.py").touch()
        path.write_text(textwrap.dedent(source))
        importlib.invalidate_caches()
        made.append(name)
        return name

    yield make
    for name in made:
        sys.modules.pop(name, None)
        sys.modules.pop(name.partition(".")[0], None)
    assert not import_watch._waiting
    assert import_watch._finder not in sys.meta_path


def test_an_imported_module_calls_at_once():
    calls = []
    when_imported("sys", lambda: calls.append("sys"))
    assert calls == ["sys"]


def test_the_callback_runs_when_the_body_has_run_and_before_import_returns(make_module):
    name = make_module("watched_one", "value = 1\nfinished = True")
    seen = []
    when_imported(name, lambda: seen.append(sys.modules[name].finished))
    module = importlib.import_module(name)
    assert seen == [True]
    assert module.value == 1


def test_a_submodule_is_seen_in_the_middle_of_its_package(make_module):
    name = make_module("watched_package.inner", "x = 1")
    package = Path(sys.path[0], "watched_package", "__init__.py")
    package.write_text("from watched_package import inner\nafter_inner = True\n")
    seen = []
    when_imported(name, lambda: seen.append(hasattr(sys.modules["watched_package"], "after_inner")))
    importlib.import_module("watched_package")
    assert seen == [False]


def test_callbacks_run_once_and_in_order(make_module):
    name = make_module("watched_twice")
    seen = []
    when_imported(name, lambda: seen.append(1))
    when_imported(name, lambda: seen.append(2))
    module = importlib.import_module(name)
    importlib.reload(module)
    assert seen == [1, 2]


def test_the_module_keeps_its_own_loader_also_while_its_body_runs(make_module):
    name = make_module("watched_loader", "during = type(__spec__.loader).__name__")
    when_imported(name, lambda: None)
    module = importlib.import_module(name)
    assert module.during == "SourceFileLoader"
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert module.__spec__.loader is module.__loader__


def test_a_failing_callback_is_one_warning(make_module):
    name = make_module("watched_bad")
    seen = []

    def fail() -> None:
        raise ValueError("no luck")

    when_imported(name, fail)
    when_imported(name, lambda: seen.append("next"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        importlib.import_module(name)
    assert [str(w.message) for w in caught] == [
        "gpumemtrace: could not set up after the import of watched_bad: ValueError: no luck"
    ]
    assert seen == ["next"]


def test_a_callback_may_end_the_process(make_module):
    name = make_module("watched_exit")

    def stop() -> None:
        raise SystemExit(1)

    when_imported(name, stop)
    with pytest.raises(SystemExit):
        importlib.import_module(name)


def test_a_failed_import_raises_as_ever_and_waits_for_the_next_attempt(make_module):
    name = make_module("watched_retry", "raise KeyError('first time')")
    seen = []
    when_imported(name, lambda: seen.append("ok"))
    with pytest.raises(KeyError, match="first time"):
        importlib.import_module(name)
    assert seen == []
    make_module(name, "")
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    importlib.import_module(name)
    sys.dont_write_bytecode = before
    assert seen == ["ok"]


def test_a_missing_module_raises_as_ever():
    def callback() -> None:
        raise AssertionError("never called")

    when_imported("watched_missing", callback)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("watched_missing")
    assert caught.value.name == "watched_missing"
    forget("watched_missing", callback)
    assert import_watch._finder not in sys.meta_path


def test_forget_what_was_never_asked_for():
    forget("watched_never", lambda: None)
