"""schema.py says what csrc/trace/event.h says."""

import enum
import re
from pathlib import Path

import numpy as np

from gpumemtrace import schema

EVENT_H = (Path(__file__).resolve().parent.parent / "csrc" / "trace" / "event.h").read_text()
CODE = re.sub(r"//.*", "", EVENT_H)


def native_enum(name: str, prefix: str = "k") -> dict[str, int]:
    """Members of an enum of event.h, in Python's spelling: kAllocFailed -> ALLOC_FAILED."""
    (body,) = re.findall(rf"enum (?:class )?{name} : [\w:]+ \{{(.*?)\}};", CODE, re.DOTALL)
    members = re.findall(r"(\w+) = (\d+)", body)
    assert len(members) == body.count("=") > 1
    spelled = [(re.sub(f"^{prefix}", "", member), value) for member, value in members]
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", m).upper(): int(value) for m, value in spelled}


def python_enum(cls: type[enum.IntEnum] | type[enum.IntFlag]) -> dict[str, int]:
    return {name: int(member) for name, member in cls.__members__.items()}


def test_kinds() -> None:
    assert python_enum(schema.Kind) == native_enum("Kind")


def test_stats_causes() -> None:
    assert python_enum(schema.StatsCause) == native_enum("StatsCause")


def test_phase_flags() -> None:
    assert python_enum(schema.PhaseFlags) == native_enum("PhaseFlags", prefix="kPhase")


def test_segment_flags() -> None:
    assert python_enum(schema.SegmentFlags) == native_enum("SegmentFlags", prefix="kSegment")


def test_categories() -> None:
    assert python_enum(schema.Category) == native_enum("Category")


def test_stack_states() -> None:
    assert python_enum(schema.StackState) == native_enum("StackState")


def test_columns_are_the_fields_of_an_event() -> None:
    (body,) = re.findall(r"struct Event \{(.*?)\};", CODE, re.DOTALL)
    fields = {name: kind for kind, name in re.findall(r"([\w:]+) (\w+);", body)}
    assert fields.pop("kind") == "Kind"
    assert "enum class Kind : std::uint16_t" in CODE
    native = {name: np.dtype(re.sub(r"std::(\w+)_t", r"\1", kind)) for name, kind in fields.items()}
    native |= {"kind": np.dtype(np.uint16)}
    native["size_bytes"] = native.pop("size")
    assert native.pop("time") == np.uint64  # ticks in the ring; signed once it is ns
    native["time_ns"] = np.dtype(np.int64)
    assert native == schema.COLUMNS
