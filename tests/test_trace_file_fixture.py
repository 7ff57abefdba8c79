"""Files of released format versions stay readable (tests/data/README.md)."""

from pathlib import Path

import numpy as np
import pytest
from format_reader import read_trace
from trace_files import NAMES, assert_equal

from gpumemtrace.trace_file import TraceFile

DATA = Path(__file__).resolve().parent / "data"


@pytest.mark.parametrize(
    ("name", "version", "counts"),
    [
        ("format-v1", (1, 0), [400, 40, 120, 1]),
        ("format-v1.1", (1, 1), [400, 40, 120, 1, 561, 300, 261, 561]),
    ],
)
def test_a_file_of_an_old_version_reads_as_it_did(
    name: str, version: tuple[int, int], counts: list[int]
) -> None:
    path = DATA / f"{name}.gmt"
    file = TraceFile(path)
    assert file.format_version == version
    assert file.verify() == ()
    assert file.complete
    assert file.footer == {"reason": "end"}
    assert file.names == NAMES
    assert file.run_record == {
        "script": "train.py",
        "pid": 4242,
        "torch": {"version": "2.11.0", "cuda": "13.0"},
    }
    assert file.chunks["count"].tolist() == counts
    with np.load(DATA / f"{name}.npz") as stored:
        assert_equal(file.read(), dict(stored))


def test_the_fixture_holds_every_encoding() -> None:
    # Else the test above would say less than it seems to.
    trace = read_trace(DATA / "format-v1.gmt")
    assert trace["encodings"] == {0, 1, 2}
    assert {18, 19} & {event["kind"] for event in trace["events"]}
    assert max(event["kind"] for event in trace["events"]) > 255


def test_the_fixture_of_codec_2_holds_every_instruction() -> None:
    trace = read_trace(DATA / "format-v1.1.gmt")
    assert trace["operations"] == {0, 1, 2, 3, 4, 5}
    assert trace["encodings"] == set()
    assert TraceFile(DATA / "format-v1.1.gmt").chunks["flags"].tolist() == [1, 0, 0, 0, 0, 0, 1, 0]
