"""Made-up states of an allocator with one thing each, of known size."""

from __future__ import annotations

from slow_allocator import SlowAllocator
from synthetic import MIB, TraceBuilder

from gpumemtrace.schema import Kind

GIB = 1024 * MIB


def ten_free_blocks() -> TraceBuilder:
    """Ten free blocks of 100 MiB, each in a segment with a block in use beside it."""
    builder = TraceBuilder()
    for i in range(10):
        base = (1 << 40) + i * GIB
        builder.add(Kind.SEGMENT_ALLOC, address=base, size_bytes=102 * MIB)
        builder.alloc(base, 100 * MIB).alloc(base + 100 * MIB, 2 * MIB)
        builder.stats(0, *[(i + 1) * 102 * MIB] * 3)
    for i in range(10):
        builder.free((1 << 40) + i * GIB)
    builder.stats(0, 20 * MIB, 20 * MIB, 1020 * MIB)
    return builder


def interleaved() -> tuple[TraceBuilder, dict[str, int]]:
    """Blocks of 2 MiB that stay, between those of 8 MiB that went."""
    allocator = SlowAllocator()
    blocks = [allocator.alloc((8, 2)[i % 2] * MIB, 0) for i in range(80)]
    for block in blocks[::2]:
        allocator.free(block)
    return allocator.trace, {"interleaved": 40 * 8 * MIB}


def idle() -> tuple[TraceBuilder, dict[str, int]]:
    """Segments of growing size, none of which is large enough for the next request."""
    allocator = SlowAllocator()
    for i in range(20):
        allocator.free(allocator.alloc((20 + 2 * i) * MIB, 0))
    return allocator.trace, {"idle": sum((20 + 2 * i) * MIB for i in range(20))}


def other_stream() -> tuple[TraceBuilder, dict[str, int]]:
    """A stream that made a cache once, and one that can't use it."""
    allocator = SlowAllocator()
    for block in [allocator.alloc(50 * MIB, 0x5000) for _ in range(10)]:
        allocator.free(block)
    for _ in range(30):
        allocator.alloc(40 * MIB, 0)
    return allocator.trace, {"other_stream": 500 * MIB}


def train_and_eval(epochs: int = 24, *, capacity: int = 4 * GIB) -> tuple[TraceBuilder, list[int]]:
    """Each epoch trains with more than the last, and leaves a block behind what it frees.

    Returns the trace, and the largest free block as each epoch's eval begins.
    """
    allocator = SlowAllocator()
    builder = allocator.trace
    allocator.free(allocator.alloc(1000 * MIB, 0))
    largest = []
    for epoch in range(epochs):
        used = allocator.totals()["reserved"] + 500 * MIB
        builder.add(Kind.DEVICE_USED, size_bytes=used, stream=capacity)
        builder.phase("train")
        temporaries = [allocator.alloc(30 * MIB, 0) for _ in range(epoch + 1)]
        allocator.alloc(3 * MIB, 0)
        for block in temporaries:
            allocator.free(block)
        builder.phase("eval")
        free = [b.size for s in allocator.segments for b in s.blocks if b.state == "free"]
        largest.append(max(free, default=0))
        allocator.free(allocator.alloc(500 * MIB, 0))
        builder.phase("")
        builder.step(epoch + 1)
    return builder, largest
