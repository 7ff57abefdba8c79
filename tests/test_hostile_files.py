"""GIVEN files made to hurt, THEN every command gives an answer or an error of one line.

`tests/fuzz/fuzz_commands.py` makes them; `make fuzz` tries many more. The files under
``tests/fuzz/corpus/commands`` are those that once got through: the name says to which command.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from gpumemtrace import _core
from gpumemtrace.cli.options import writing
from gpumemtrace.errors import GpuMemTraceError
from gpumemtrace.trace_file import TraceFile

FUZZ = Path(__file__).parent / "fuzz"
sys.path.insert(0, str(FUZZ))

from fuzz_commands import READING, try_number, what_is_wrong  # noqa: E402

FOUND = sorted((FUZZ / "corpus" / "commands").iterdir())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_once_got_through(path: Path, here: Path) -> None:
    name = path.stem.split("-")[0]
    for command in READING:
        if command[0] == name:
            assert what_is_wrong(path, command) is None, command


@pytest.mark.parametrize("number", range(12))
def test_a_few_files_made_to_hurt(number: int, here: Path) -> None:
    assert try_number(number, here, commands=2) == []


def write(path: Path, *, record: object = None, names: object = None) -> TraceFile:
    writer = _core.FileWriter(str(path), 1, True, 2, 1 << 20, 0)
    writer.write_metadata(json.dumps({} if record is None else record))
    writer.write_names(json.dumps({} if names is None else names))
    writer.close("{}")
    return TraceFile(path)


def test_values_of_the_wrong_type_are_left_out_and_named(tmp_path: Path) -> None:
    record = {
        "pid": "one",
        "rank": 0,
        "argv": ["train.py", 3],
        "devices": [{"index": 0, "name": 5, "memory_bytes": 10**30}],
        "simulated": {"gpu": "H200", "approximations": 3.5},
        "something": {"new": [1]},
    }
    file = write(tmp_path / "t.gmt", record=record)
    assert file.run_record == {
        "rank": 0,
        "devices": [{"index": 0}],
        "simulated": {"gpu": "H200"},
        "something": {"new": [1]},
    }
    (problem,) = file.problems
    assert problem.kind == "bad_text"
    assert problem.message == (
        "the run record holds values of the wrong type: pid, argv[1], devices[0].name, "
        "devices[0].memory_bytes, simulated.approximations"
    )


def test_rows_that_do_not_fit_are_left_out_and_counted(tmp_path: Path) -> None:
    names = {
        "phases": [[1, 0, "forward"], ["x", 0, "y"], [2, None, "z"], [3, 0, {}]],
        "sites": [[1, 0, 0, 1], [1 << 40, 0, 0, 1], [2, 0, 0]],
    }
    file = write(tmp_path / "t.gmt", names=names)
    assert file.names.phases == {1: (0, "forward")}
    assert file.names.sites == {1: (0, 0, 1)}
    assert [problem.message for problem in file.problems] == [
        "a table of names: phases has 3 rows that can't be; sites has 2 rows that can't be"
    ]


def test_what_a_terminal_would_obey_is_shown_as_its_code(tmp_path: Path) -> None:
    hostile = "\x1b[31m\x9b\u202egnp\ud800\r\x7f Schicht ☃\n"
    file = write(
        tmp_path / "t.gmt", record={"script": hostile}, names={"phases": [[1, 0, hostile]]}
    )
    shown = r"\x1b[31m\x9b\u202egnp\ud800\x0d\x7f Schicht ☃" + "\n"
    assert file.run_record["script"] == shown
    assert file.names.phases == {1: (0, shown)}
    assert file.problems == ()


@pytest.mark.parametrize("text", ['{"rank": NaN}', "[" * 100_000, '{"rank": 1e400'])
def test_what_is_no_json_is_said(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.gmt"
    writer = _core.FileWriter(str(path), 1, True, 2, 1 << 20, 0)
    writer.write_metadata(text)
    writer.close("{}")
    (problem,) = TraceFile(path).problems
    assert problem.message.startswith("the run record is not a JSON object: ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make somebody else's link")
def test_nothing_is_written_through_a_link_of_somebody_elses(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "out.html"
    link.symlink_to(victim)
    os.lchown(link, 65534, 65534)
    with pytest.raises(GpuMemTraceError, match="somebody else's link"), writing(link):
        pass
    os.lchown(link, os.geteuid(), os.getegid())
    with writing(link) as part:  # one's own is followed
        part.write_text("mine")
    assert victim.read_text() == "mine"


def test_what_is_written_has_the_users_umask_and_a_name_that_nobody_can_guess(
    tmp_path: Path,
) -> None:
    before = os.umask(0o027)
    try:
        names = set()
        for _ in range(2):
            with writing(tmp_path / "out.html") as part:
                names.add(part.name)
                part.write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out.html").stat().st_mode) == 0o640
    assert len(names) == 2
