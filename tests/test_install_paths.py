"""Where traces go, and options from arguments and environment. No GPU."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gpumemtrace.capture.options import RecordingOptions, is_switched_on
from gpumemtrace.capture.output_path import choose_path
from gpumemtrace.errors import InstallError

PID = os.getpid()


@pytest.fixture(autouse=True)
def _a_script_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["/somewhere/my train.py", "x"])
    monkeypatch.delattr("__main__.__spec__", raising=False)
    monkeypatch.setenv("RANK", "2")
    for name in ("LOCAL_RANK", "GPUMEMTRACE_PARENT"):
        monkeypatch.delenv(name, raising=False)


def choose(output: str | None = None, *, force: bool = False, may_raise: bool = True) -> str:
    path = choose_path(RecordingOptions(output=output, force=force), may_raise=may_raise)
    assert path.is_absolute()
    return str(path.relative_to(Path.cwd()))


def test_the_default_name() -> None:
    assert choose() == f"gpumemtrace-my_train.2.{PID}.gmt"


@pytest.mark.parametrize(
    ("argv0", "name"),
    [("-c", "command"), ("", "interactive"), ("-", "interactive"), ("a/b.c.py", "b.c")],
)
def test_names_of_programs(argv0: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [argv0])
    assert choose() == f"gpumemtrace-{name}.2.{PID}.gmt"


def test_a_name_that_is_too_long() -> None:
    for output in ("x" * 300, "{script}" + "é" * 130 + ".gmt"):
        with pytest.raises(InstallError, match=r"too long a name: 255 bytes at most in .*; choose"):
            choose(output)
    assert choose("x" * 251 + ".gmt") == "x" * 251 + ".gmt"
    assert choose("x" * 300, may_raise=False) == "x" * 300  # the recording will say so


def test_a_folder_and_a_pattern() -> None:
    Path("there").mkdir()
    assert choose("there") == f"there/gpumemtrace-my_train.2.{PID}.gmt"
    assert choose("there/") == f"there/gpumemtrace-my_train.2.{PID}.gmt"
    pattern = "t-{script}-{rank}-{local_rank}-{host}-{pid}-{other}.gmt"
    assert choose(pattern) == f"t-my_train-2-2-{socket.gethostname()}-{PID}-{{other}}.gmt"
    with pytest.raises(InstallError, match="not a folder"):
        choose("new/")


def test_nothing_is_overwritten_unless_forced() -> None:
    Path("out.gmt").touch()
    with pytest.raises(InstallError, match="is there already"):
        choose("out.gmt")
    assert choose("out.gmt", may_raise=False) == "out.1.gmt"
    assert choose("out.gmt", force=True) == "out.gmt"
    # Names that we made up never fail: the pid may have come round again.
    Path(choose()).touch()
    Path(choose()).touch()
    assert choose() == f"gpumemtrace-my_train.2.{PID}.2.gmt"
    Path("link.gmt").symlink_to("nowhere")
    with pytest.raises(InstallError, match="is there already"):
        choose("link.gmt")


def test_children_add_rank_and_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMEMTRACE_PARENT", str(PID))
    assert choose("out.gmt") == "out.gmt"
    monkeypatch.setenv("GPUMEMTRACE_PARENT", "1")
    assert choose("out.gmt") == f"out.2.{PID}.gmt"
    assert choose("out") == f"out.2.{PID}.gmt"


def test_options_survive_the_environment() -> None:
    for options in (
        RecordingOptions(),
        RecordingOptions(output="x y", phases=None, force=True, quiet=True, ring_bytes=4096),
        RecordingOptions(on_full="block", block_timeout_ms=7),
        RecordingOptions(flight_recorder="5min", flight_recorder_bytes=1 << 21),
        RecordingOptions(phases="manual", time_resolution_ns=1, device_sample_interval_ms=0),
        RecordingOptions(max_disk="2GiB"),
    ):
        environment = {"GPUMEMTRACE_FORCE": "1", "GPUMEMTRACE_OUTPUT": "of somebody else"}
        options.to_environment(environment)
        assert RecordingOptions.from_environment(environment) == options
        assert is_switched_on(environment)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("60s", 60_000),
        ("60", 60_000),
        ("0.5", 500),
        ("250ms", 250),
        ("5min", 300_000),
        ("2m", 120_000),
        ("1h", 3_600_000),
    ],
)
def test_times_of_a_flight_recorder(text: str, ms: int) -> None:
    assert RecordingOptions(flight_recorder=text).flight_window_ms == ms


@pytest.mark.parametrize("value", ["", "0", "false", "No", "off"])
def test_switched_off(value: str) -> None:
    assert not is_switched_on({"GPUMEMTRACE": value})
    assert not is_switched_on({})


def test_wrong_options() -> None:
    with pytest.raises(ValueError, match=r"overwrite.*does not exist; there is"):
        RecordingOptions(on_full="overwrite")
    with pytest.raises(ValueError, match="block_timeout_ms is between 1 and 10000"):
        RecordingOptions(on_full="block", block_timeout_ms=0)
    with pytest.raises(ValueError, match="'soon' is not a time: write it like 60s"):
        RecordingOptions(flight_recorder="soon")
    with pytest.raises(ValueError, match="flight_recorder is between 1ms and 168h, not 200h"):
        RecordingOptions(flight_recorder="200h")
    with pytest.raises(ValueError, match="flight_recorder is between 1ms and 168h, not 0"):
        RecordingOptions(flight_recorder="0")
    with pytest.raises(ValueError, match="flight_recorder_bytes is between"):
        RecordingOptions(flight_recorder="1s", flight_recorder_bytes=10)
    for size in (2e9, b"2GiB", True, [1 << 30]):
        with pytest.raises(TypeError, match='max_disk is a size like "2GiB" or a whole number'):
            RecordingOptions(max_disk=size)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="phases is"):
        RecordingOptions(phases="all")
    with pytest.raises(ValueError, match="ring_bytes is between"):
        RecordingOptions(ring_bytes=1)
    assert RecordingOptions(max_disk="1.5GiB").max_disk_bytes == 3 << 29
    assert RecordingOptions(max_disk=5 << 20).max_disk_bytes == 5 << 20
    with pytest.raises(ValueError, match=r"flight_recorder_bytes \(--flight-memory\) limits it"):
        RecordingOptions(max_disk="2GiB", flight_recorder="60s")
    with pytest.raises(ValueError, match=r"max_disk \(--max-disk\) is 1MiB or more, not "):
        RecordingOptions(max_disk="1KiB")
    with pytest.raises(ValueError, match="'much' is not a size"):
        RecordingOptions(max_disk="much")
    with pytest.raises(TypeError, match="time_resolution_ns is a whole number"):
        RecordingOptions(time_resolution_ns=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="GPUMEMTRACE_PHASES=all: phases is"):
        RecordingOptions.from_environment({"GPUMEMTRACE_PHASES": "all"})
