"""GIVEN pickles that do more than hold data, or are broken, THEN they are refused, nothing runs."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumemtrace import _core
from gpumemtrace.cli.main import main
from gpumemtrace.errors import SnapshotError
from gpumemtrace.imports.snapshot import read_snapshot

numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
texts = st.text(max_size=300)
plain = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(texts, inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
    ),
    max_leaves=40,
)


@given(plain, st.sampled_from([2, 3, 4, 5]))
def test_plain_data_is_read_as_python_does(data, protocol):
    assert _core.load_plain_pickle(pickle.dumps(data, protocol)) == data


@given(st.binary(max_size=300))
def test_any_bytes_give_data_or_an_error(data):
    with contextlib.suppress(_core.FormatError, UnicodeDecodeError):
        _core.load_plain_pickle(b"\x80\x04" + data)


@given(plain, st.data())
def test_a_cut_or_a_changed_byte_gives_data_or_an_error(data, draw):
    whole = bytearray(pickle.dumps(data, 4))
    place = draw.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(_core.FormatError):
        _core.load_plain_pickle(bytes(whole[:place]))
    whole[place] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(_core.FormatError, UnicodeDecodeError):
        _core.load_plain_pickle(bytes(whole))


class Touches:
    """Unpickled by Python, it makes a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def evil_pickles(path: str) -> dict[str, bytes]:
    command = f"touch {path}".encode()
    text = b"X" + struct.pack("<I", len(command)) + command
    body = {
        "GLOBAL REDUCE": b"cos\nsystem\n" + text + b"\x85R",
        "GLOBAL eval": b"cbuiltins\neval\n" + text + b"\x85R",
        "STACK_GLOBAL REDUCE": b"\x8c\x02os\x8c\x06system\x93" + text + b"\x85R",
        "INST": b"(" + text + b"ios\nsystem\n",
        "OBJ": b"(cos\nsystem\n" + text + b"o",
        "NEWOBJ": b"cos\nsystem\n" + text + b"\x85\x81",
        "NEWOBJ_EX": b"cos\nsystem\n" + text + b"\x85}\x92",
        "BUILD": b"}}b",
        "EXT1": b"\x82\x01",
        "EXT2": b"\x83\x01\x00",
        "EXT4": b"\x84\x01\x00\x00\x00",
        "PERSID": b"Px\n",
        "BINPERSID": b"NQ",
        "NEXT_BUFFER": b"\x97",
        "BYTEARRAY8": b"\x96" + bytes(8),
        "EMPTY_SET": b"\x8f",
        "FROZENSET": b"(\x91",
    }
    return {name: b"\x80\x04" + code + b"." for name, code in body.items()}


@pytest.mark.parametrize("name", evil_pickles("x"))
def test_code_is_refused_and_not_run(name, tmp_path, capsys):
    """C70: a trace format that can be shared must not run anything."""
    touched = tmp_path / "touched"
    path = tmp_path / "evil.pickle"
    path.write_bytes(evil_pickles(str(touched))[name])
    with pytest.raises(SnapshotError, match=r"more than plain data.*nothing in it was run"):
        read_snapshot(path)
    assert main(["import", str(path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == [path]


def test_the_same_code_hidden_in_a_snapshot(tmp_path):
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[Touches(tmp_path / "x")]]}))
    with pytest.raises(SnapshotError, match="more than plain data"):
        read_snapshot(path)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"Nr\xff\xff\xff\x7f", "leaves out a memo number"),  # Python would make room for 2^31
        (b"h\x00", "before it is set"),
        (b"\x8e" + b"\xff" * 8, "ends too early"),
        (b"X\xff\xff\xff\xff", "ends too early"),
        (b"\x8a\xff" + b"\x01" * 255, "more than 64 bits"),
        (b"(" * 2000, "nested too deeply"),
        (b"}K\x01Ns", "a key that is no text"),  # keys that collide would take for ever
        (b"e", "ends what it has not begun"),
        (b"(NNe", "appends to no list"),
        (b"](a", "takes more than it has"),
        (b"}(X\x01\x00\x00\x00au", "a key without a value"),
        (b"\x80\x06", "protocol 6"),
        (b"", "ends too early"),
    ],
)
def test_bombs_and_broken_pickles(code, message):
    with pytest.raises(_core.FormatError) as caught:
        _core.load_plain_pickle(b"\x80\x04" + code)
    assert message in caught.value.args[2]


def test_one_list_repeated_for_next_to_nothing(tmp_path):
    """A few hundred bytes that stand for a billion entries."""
    path = tmp_path / "bomb.pickle"
    trace = [{"action": "alloc", "addr": 512, "size": 1}] * 1000
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace] * 1000}))
    with pytest.raises(SnapshotError, match="do not fit into its"):
        read_snapshot(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "the snapshot is a int, not a dict"),
        ({}, "no 'segments'"),
        ({"segments": {}}, "segments is a dict, not a list"),
        ({"segments": [], "device_traces": [[3]]}, r"device_traces\[0\]\[0\] is a int"),
        ({"segments": [], "device_traces": [[{"action": 3}]]}, "'action' that is a text"),
        (
            {"segments": [], "device_traces": [[{"action": "alloc", "addr": -1}]]},
            r"device_traces\[0\]\[0\] holds a number",
        ),
        ({"segments": [{"address": 0, "total_size": "x"}]}, "no 'total_size'"),
        (
            {"segments": [{"address": 0, "total_size": 1, "blocks": [{"size": 2, "state": "x"}]}]},
            "blocks beyond its end",
        ),
        ({"segments": [{"device": 10**6, "address": 0, "total_size": 1}]}, "no 'device'"),
    ],
)
def test_plain_data_that_is_no_snapshot(data, message, tmp_path):
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(data))
    with pytest.raises(SnapshotError, match=message):
        read_snapshot(path)
