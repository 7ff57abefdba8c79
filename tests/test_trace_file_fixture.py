"""Files of released format versions stay readable (tests/data/README.md)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from format_reader import read_trace
from trace_files import NAMES, assert_equal

from gpumemtrace.trace_file import Names, TraceFile

WITH_SITES = replace(
    NAMES,
    modules={1: (0, "Net"), 2: (1, "layers.0")},
    codes={1: ("train.py", "main", 3)},
    frames={1: (0, 1, 7), 2: (1, 1, 9)},
    sites={1: (1, 0, 0), 2: (2, 0, 0), 3: (2, 2, 1), 10: (0, 1, 2)},
)
DATA = Path(__file__).resolve().parent / "data"


@pytest.mark.parametrize(
    ("name", "version", "counts", "names"),
    [
        ("format-v1", (1, 0), [400, 40, 120, 1], NAMES),
        ("format-v1.1", (1, 1), [400, 40, 120, 1, 561, 300, 261, 561], NAMES),
        ("format-v1.2", (1, 2), [120, 120], WITH_SITES),
    ],
)
def test_a_file_of_an_old_version_reads_as_it_did(
    name: str, version: tuple[int, int], counts: list[int], names: Names
) -> None:
    path = DATA / f"{name}.gmt"
    file = TraceFile(path)
    assert file.format_version == version
    assert file.verify() == ()
    assert file.complete
    assert file.footer == {"reason": "end"}
    assert file.names == names
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
