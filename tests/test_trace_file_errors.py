"""What can't be opened or written says what, where and what to do."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from format_reader import crc32c
from trace_files import training_columns, write_in_pieces

from gpumemtrace import _core
from gpumemtrace.errors import CorruptTraceError, NotATraceError, UnsupportedVersionError
from gpumemtrace.trace_file import FileWriter, TraceFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.gmt"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n", "does not begin like a trace"),
        (b"import torch\n" * 100, "does not begin like a trace"),
        (b"PK\x03\x04" + bytes(1000), "does not begin like a trace"),
    ],
)
def test_not_a_trace(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(NotATraceError, match=f"^{path}: not a gpumemtrace trace: {message}$"):
        TraceFile(path)


def test_text_transfer_is_damage(path: Path) -> None:
    write_in_pieces(path, training_columns(5), 5)
    path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n"))
    with pytest.raises(NotATraceError):
        TraceFile(path)


def test_newer_major_version_is_refused_by_name(path: Path) -> None:
    write_in_pieces(path, training_columns(5), 5)
    content = bytearray(path.read_bytes())
    content[8:12] = struct.pack("<2H", 7, 3)
    content[12:16] = struct.pack("<I", crc32c(bytes(content[:12])))
    path.write_bytes(content)
    with pytest.raises(UnsupportedVersionError) as error:
        TraceFile(path)
    assert str(error.value) == (
        f"{path}: format version 7.3; this reader knows version 1; "
        "upgrade with: pip install --upgrade gpumemtrace"
    )


def test_a_preamble_with_nothing_behind_it_that_could_help(path: Path) -> None:
    write_in_pieces(path, training_columns(5), 5)
    content = bytearray(path.read_bytes())
    content[8] ^= 2  # looks like version 3, but the checksum knows better
    path.write_bytes(content)
    file = TraceFile(path)
    assert [problem.kind for problem in file.problems] == ["damaged_preamble"]
    assert file.format_version == (1, 2)
    path.write_bytes(content[:16] + bytes(200))
    with pytest.raises(CorruptTraceError, match="damaged at byte 0: ") as error:
        TraceFile(path)
    assert error.value.offset == 0


def test_system_errors_keep_their_type_and_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as directory:
        TraceFile(tmp_path)
    assert directory.value.filename == str(tmp_path)
    with pytest.raises(FileNotFoundError) as missing:
        TraceFile(tmp_path / "no.gmt")
    assert missing.value.filename == str(tmp_path / "no.gmt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        TraceFile(tmp_path / "pipe")


def test_no_permission(path: Path) -> None:
    write_in_pieces(path, training_columns(5), 5)
    path.chmod(0)
    user = os.geteuid()
    if user == 0:  # root may read anything
        os.seteuid(65534)
    try:
        with pytest.raises(PermissionError):
            TraceFile(path)
    finally:
        os.seteuid(user)


def test_an_existing_file_is_kept_unless_asked(path: Path) -> None:
    path.write_text("precious")
    with pytest.raises(FileExistsError) as error:
        FileWriter(path)
    assert error.value.filename == str(path)
    assert path.read_text() == "precious"
    FileWriter(path, overwrite=True).close()
    assert TraceFile(path).complete


def test_names_that_are_no_utf8_work(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.gmt"))
    FileWriter(path).close()
    assert TraceFile(path).complete


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no /dev/full here")
def test_disk_full() -> None:
    writer = FileWriter("/dev/full", overwrite=True)
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        writer.write_metadata({})
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        writer.close()


def test_an_exception_leaves_the_file_without_an_end(path: Path) -> None:
    with pytest.raises(KeyError), FileWriter(path) as writer:
        writer.write_metadata({"pid": 1})
        raise KeyError
    file = TraceFile(path)
    assert not file.complete
    assert file.run_record == {"pid": 1}


def test_writing_to_a_closed_file(path: Path) -> None:
    writer = FileWriter(path)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.append({"kind": [1]})


def test_a_codec_must_be_one_that_there_is(path: Path) -> None:
    with pytest.raises(ValueError, match="codec must be 1 or 2, not 3"):
        FileWriter(path, codec=3)
    with pytest.raises(ValueError, match="events_per_keyframe must be 1 or more, not 0"):
        FileWriter(path, events_per_keyframe=0)


def test_time_resolution_must_be_positive(path: Path) -> None:
    with pytest.raises(ValueError, match="time_resolution_ns must be 1 or more, not 0"):
        FileWriter(path, time_resolution_ns=0)
    assert not path.exists()


def test_json_that_is_none_is_a_problem_not_a_crash(path: Path) -> None:
    writer = _core.FileWriter(str(path), 1, False, 2, 1 << 20, 0)
    writer.write_metadata(b"\xff\xfe")
    writer.write_metadata("[1]")
    writer.write_metadata('{"pid": 1}')
    writer.write_names('{"phases": [[1]], "strings": 3, "threads": [["x", 1, "y"]]}')
    writer.close("{}")
    file = TraceFile(path)
    assert file.run_record == {"pid": 1}
    assert [problem.kind for problem in file.problems] == ["bad_text"] * 3
    assert file.names.phases == {}


def test_columns_come_back_writeable(path: Path) -> None:
    write_in_pieces(path, training_columns(5), 5)
    columns = TraceFile(path).read()
    columns["size_bytes"][:] = 0
    assert np.all(columns["size_bytes"] == 0)
