"""The stream of each allocation, which the hook tells from the block's address where it can.

Memory that goes back to the driver comes again, for another stream: so each program here has
addresses change hands, says itself on which stream it allocated, and is believed.
"""

from pathlib import Path

import numpy as np
import pytest
from hook import run_traced
from simgpu import result_of

from gpumemtrace.schema import Kind
from gpumemtrace.trace_file import TraceFile

pytestmark = pytest.mark.simgpu

SETTINGS = ["", "expandable_segments:True", "release_lock_on_cudamalloc:True"]

# A program's own record: the address and the stream of each allocation, in order.
NOTE = """
    import json
    import random
    import torch
    import hook_child

    MIB = 1 << 20
    noted = []

    def allocate(size_bytes, stream, device=0):
        with torch.cuda.stream(stream):
            block = torch.empty(size_bytes, dtype=torch.uint8, device=f"cuda:{device}")
        noted.append([block.data_ptr(), stream.cuda_stream])
        return block

    def finish():
        hook_child.stop()
        print(json.dumps(noted))
"""


def check_streams(program: str, trace: Path, *, settings: str = "") -> None:
    """Compare the trace with what the program noted; addresses must have changed hands."""
    done = run_traced(NOTE + program, trace, torch_conf=settings or None, devices=2)
    noted = np.array(result_of(done), dtype=np.uint64)
    columns = TraceFile(trace).read()
    allocs = columns["kind"] == Kind.ALLOC
    told = np.stack([columns["address"][allocs], columns["stream"][allocs]], axis=1)
    assert np.array_equal(told.astype(np.uint64), noted)
    owners = np.unique(noted, axis=0)[:, 0]
    assert len(np.unique(owners)) < len(owners), "no address changed hands: the test shows nothing"


@pytest.mark.parametrize("settings", SETTINGS)
def test_after_the_cache_was_emptied(tmp_path: Path, settings: str) -> None:
    program = """
    hook_child.start()
    for stream in [torch.cuda.Stream(), torch.cuda.default_stream(), torch.cuda.Stream()]:
        for _ in range(3):
            kept = [allocate(size, stream) for size in (1000, 70_000, 1000, 5 * MIB, 3 * MIB)]
        del kept
        torch.cuda.empty_cache()
    finish()
    """
    check_streams(program, tmp_path / "t.gmt", settings=settings)


@pytest.mark.parametrize("settings", SETTINGS)
def test_where_misses_flush_the_cache(tmp_path: Path, settings: str) -> None:
    # The second device's memory may lie where the first one's was, too.
    program = """
    hook_child.start()
    chosen = random.Random(5)
    for device in range(2):
        share = 60 * MIB / torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(share, device)
    streams = [[torch.cuda.Stream(device) for _ in range(3)] for device in range(2)]
    for _ in range(200):
        device = chosen.randrange(2)
        stream = chosen.choice(streams[device])
        kept = []
        for _ in range(12):
            size = chosen.choice([1000, 400_000, 2 * MIB, 4 * MIB, 11 * MIB])
            if sum(block.nbytes for block in kept) + size < 20 * MIB:
                kept.append(allocate(size, stream, device))
    finish()
    """
    check_streams(program, tmp_path / "t.gmt", settings=settings)


@pytest.mark.parametrize("settings", SETTINGS)
def test_threads_take_memory_from_each_other(tmp_path: Path, settings: str) -> None:
    # Each thread has a stream of its own, and a card too small for what all have cached.
    program = """
        import random
        import torch
        import hook_child
        from gpumemtrace import _torch_hook

        hook_child.start(ring_bytes=256 << 20)
        torch.empty(1, device="cuda")
        free_bytes, _ = torch.cuda.mem_get_info()
        ballast = torch.empty(free_bytes - (88 << 20), dtype=torch.uint8, device="cuda")
        chosen = random.Random(7)
        for _ in range(150):
            size = chosen.choice([5000, 500_000, 3 << 20, 9 << 20, 12 << 20])
            _torch_hook.time_pairs(size, 300, 4)
        stats = torch.cuda.memory_stats()
        assert stats["num_alloc_retries"] > 20, stats["num_alloc_retries"]
        hook_child.stop()
    """
    trace = tmp_path / "t.gmt"
    run_traced(program, trace, torch_conf=settings or None)
    columns = TraceFile(trace).read()
    allocs = columns["kind"] == Kind.ALLOC
    pairs = np.unique(np.stack([columns["thread"][allocs], columns["stream"][allocs]]), axis=1)
    assert pairs.shape[1] == len(np.unique(pairs[0])) == 1 + 150 * 4


def test_pools_come_and_go(tmp_path: Path) -> None:
    program = """
    hook_child.start()
    for _ in range(4):
        for stream in [torch.cuda.Stream(), torch.cuda.Stream()]:
            pool = torch.cuda.MemPool()
            with torch.cuda.use_mem_pool(pool):
                for _ in range(3):
                    kept = [allocate(size, stream) for size in (1000, 70_000, 1000, 5 * MIB)]
            del kept, pool
    finish()
    """
    check_streams(program, tmp_path / "t.gmt")


# A pool whose memory is a part of a block of torch's own: what it gives back goes to the cache that
# it came from, not to the driver, and is handed out again without a miss before.
LENDER = """
    import ctypes

    lent = []

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    def lend(size_bytes, device, stream):
        assert size_bytes == 2 * MIB
        lent.append(make())
        return lent[-1].data_ptr() + 2 * MIB

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    def take_back(address, size_bytes, device, stream):
        lent.pop()

    lender = torch._C._cuda_customAllocator(
        *(ctypes.cast(function, ctypes.c_void_p).value for function in (lend, take_back)))
    first, second = torch.cuda.Stream(OWNER), torch.cuda.Stream(0)
    ahead = []

    def make():
        if ahead:
            return ahead.pop()
        for _ in range(2):  # a miss is under way, and here are blocks where the pool's are to be
            kept = [allocate(2 * MIB, first, OWNER) for _ in range(4)]
        del kept
        return allocate(8 * MIB, first, OWNER)

    def use_pool():
        pool = torch.cuda.MemPool(lender)
        with torch.cuda.use_mem_pool(pool):
            for _ in range(3):
                kept = [allocate(size, second) for size in (1000, 1000, 70_000)]
        del kept, pool
        assert not lent
        # Where the pool's memory was, too.
        again = [allocate(2 * MIB, first, OWNER) for _ in range(4)]
        assert any(block.data_ptr() % (8 * MIB) == 2 * MIB for block in again)

    hook_child.start()
    allocate(8 * MIB, first, OWNER)
"""


def test_a_pool_that_lends_out_a_part_of_a_block(tmp_path: Path) -> None:
    program = """
    for _ in range(3):
        ahead.append(allocate(8 * MIB, first, OWNER))
        use_pool()
    finish()
    """
    check_streams((LENDER + program).replace("OWNER", "0"), tmp_path / "t.gmt")


def test_a_pool_that_makes_the_block_in_the_midst_of_a_miss(tmp_path: Path) -> None:
    # On another device, or the block would be taken from the pool itself.
    program = """
    for _ in range(3):
        use_pool()
    finish()
    """
    check_streams((LENDER + program).replace("OWNER", "1"), tmp_path / "t.gmt")
