"""Addresses and device memory of cudaMalloc, against what an H200's driver did (tests/data)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from simgpu import result_of, run_simulated

pytestmark = pytest.mark.simgpu

DATA = Path(__file__).parent / "data"

# Replays sequences of [bytes, address, used] and ["free", index, free_after] with ctypes alone,
# each after everything of the one before was freed, as they were recorded.
REPLAY = """
import ctypes, json, sys
from gpumemtrace.capture.simulate import library_path

cuda = ctypes.CDLL(str(library_path()))
def free_bytes():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value

def replay(sequence):
    live, seen = [], []
    for step in sequence:
        before = free_bytes()
        if step[0] == "free":
            assert cuda.cudaFree(ctypes.c_void_p(live[step[1]])) == 0
            live[step[1]] = None
            seen.append(["free", step[1], free_bytes()])
        else:
            address = ctypes.c_void_p()
            assert cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(step[0])) == 0
            live.append(address.value)
            seen.append([step[0], address.value, before - free_bytes()])
    for address in live:
        assert cuda.cudaFree(ctypes.c_void_p(address)) == 0
    return seen

print(json.dumps([replay(sequence) for sequence in json.loads(sys.argv[1])]))
"""


def read_recording(path: Path) -> dict[str, list[list[int | str]]]:
    """Return the sequences of a recording by name, addresses as integers."""
    sequences = {}
    for line in path.read_text().splitlines():
        if not line.startswith("SEQ "):
            continue
        name, _, steps = line.removeprefix("SEQ ").partition(" [[")
        sequences[name] = [
            step if step[0] == "free" else [step[0], int(step[1], 16), step[2]]
            for step in json.loads("[[" + steps)
        ]
    return sequences


def relative(steps: list[list[int | str]], origin: int) -> list[list[int | str]]:
    return [step if step[0] == "free" else [step[0], step[1] - origin, step[2]] for step in steps]


@pytest.mark.parametrize("process", ["process1", "process2"])
def test_addresses_are_those_of_the_driver(process: str) -> None:
    """GIVEN a recording WHEN it is replayed THEN addresses, sizes and free memory are the same."""
    recorded = read_recording(DATA / f"cudamalloc_h200_{process}.txt")
    assert len(recorded) >= 5
    done = run_simulated(REPLAY, args=[json.dumps(list(recorded.values()))])
    replayed = dict(zip(recorded, result_of(done), strict=True))
    # One origin for the whole process: sequences are compared with each other, too.
    first = next(iter(recorded))
    recorded_origin, replayed_origin = recorded[first][0][1], replayed[first][0][1]
    for name, steps in recorded.items():
        assert relative(replayed[name], replayed_origin) == relative(steps, recorded_origin), name


def test_small_requests_share_a_page_until_the_last_is_freed() -> None:
    code = """
        import ctypes, json
        from gpumemtrace.capture.simulate import library_path
        cuda = ctypes.CDLL(str(library_path()))
        def malloc(bytes):
            address = ctypes.c_void_p()
            assert cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(bytes)) == 0
            return address.value
        def used():
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
            return total.value - free.value
        at_start = used()
        a, b, c = malloc(1), malloc(700), malloc(1 << 20)
        seen = [b - a, c - a, used() - at_start]
        for address in (a, c):
            cuda.cudaFree(ctypes.c_void_p(address))
        seen.append(used() - at_start)
        seen.append(malloc(512) - a)
        print(json.dumps(seen))
    """
    assert result_of(run_simulated(code)) == [512, 1536, 2 << 20, 2 << 20, 0]


def test_a_request_that_does_not_fit_leaves_nothing_behind() -> None:
    code = """
        import ctypes, json
        from gpumemtrace.capture.simulate import library_path
        cuda = ctypes.CDLL(str(library_path()))
        def malloc(bytes):
            address = ctypes.c_void_p()
            status = cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(bytes))
            return status, address.value
        first = malloc(64 << 20)
        refused = [malloc(1 << 30), malloc(1 << 62)]
        cuda.cudaFree(ctypes.c_void_p(first[1]))
        moved = malloc(64 << 20)[1] - first[1]
        print(json.dumps([refused, moved, cuda.cudaFree(ctypes.c_void_p(64))]))
    """
    done = run_simulated(code, memory="1GiB")
    assert result_of(done) == [[[2, None], [2, None]], 0, 1]
