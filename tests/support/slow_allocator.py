"""A caching allocator in the plainest Python, and the records that a tracer of it would make.

The rules of PyTorch's: two pools by size, best fit, split at the front, merge free neighbours, give
back whole free segments. Every figure is counted anew from the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from synthetic import MIB, TraceBuilder

from gpumemtrace.schema import Kind, SegmentFlags, StatsCause


@dataclass
class Block:
    address: int
    size: int
    state: str = "free"
    requested: int = 0
    alloc: int = -1
    other_stream: int | None = None


@dataclass
class Segment:
    base: int
    size: int
    stream: int
    is_small: bool
    pool: int
    blocks: list[Block]


@dataclass
class SlowAllocator:
    trace: TraceBuilder = field(default_factory=TraceBuilder)
    segments: list[Segment] = field(default_factory=list)
    pending: list[Block] = field(default_factory=list)
    asked: dict[int, int] = field(default_factory=dict)
    allocs: int = 0
    next_base: int = 1 << 40
    gives_back_silently: bool = False  # as older recorders: no SEGMENT_FREE

    def live(self) -> list[tuple[Segment, Block]]:
        return [(s, b) for s in self.segments for b in s.blocks if b.state == "live"]

    def alloc(self, size: int, stream: int, *, pool: int = 0) -> Block:
        rounded = -(-size // 512) * 512
        is_small = rounded <= MIB
        self.asked[stream] = self.asked.get(stream, 0) + size
        fitting = [
            (block.size, block.address, segment, block)
            for segment in self.segments
            for block in segment.blocks
            if (segment.stream, segment.is_small, segment.pool) == (stream, is_small, pool)
            and block.state == "free"
            and block.size >= rounded
        ]
        missed = not fitting
        if fitting:
            _, _, segment, block = min(fitting, key=lambda entry: entry[:2])
        else:
            segment = self._new_segment(rounded, stream, is_small, pool)
            block = segment.blocks[0]
        rest = block.size - rounded
        if rest > (0 if is_small else MIB):
            at = segment.blocks.index(block) + 1
            segment.blocks.insert(at, Block(block.address + rounded, rest))
            block.size = rounded
        block.state, block.requested, block.alloc = "live", size, self.allocs
        block.other_stream = None
        self.allocs += 1
        extra = 0 if is_small else self.totals()["allocated"]
        self.trace.alloc(block.address, size, stream=stream, extra=extra)
        if missed:
            self.stats(StatsCause.MISS)
        return block

    def _new_segment(self, rounded: int, stream: int, is_small: bool, pool: int) -> Segment:
        large = 20 * MIB if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB
        size = 2 * MIB if is_small else large
        segment = Segment(
            self.next_base, size, stream, is_small, pool, [Block(self.next_base, size)]
        )
        self.next_base += size  # segments touch, and are no neighbours for all that
        self.segments.append(segment)
        flags = SegmentFlags.SMALL if is_small else SegmentFlags.LARGE
        self.trace.add(
            Kind.SEGMENT_ALLOC, address=segment.base, size_bytes=size, stream=stream, flags=flags
        )
        if pool:
            self.trace.add(Kind.SEGMENT_POOL, address=segment.base, size_bytes=0, stream=pool)
        return segment

    def record_stream(self, block: Block, stream: int) -> None:
        (home,) = (s for s in self.segments if block in s.blocks)
        self.trace.add(Kind.RECORD_STREAM, address=block.address, stream=stream)
        if stream != home.stream:
            block.other_stream = stream

    def free(self, block: Block) -> None:
        self.trace.free(block.address, device=-1)
        if block.other_stream is None:
            self._release(block)
        else:
            block.state = "pending"
            self.pending.append(block)

    def streams_finish(self, count: int) -> None:
        """The first ``count`` pending blocks become free, and the tracer notices."""
        for block in self.pending[:count]:
            self._release(block)
        del self.pending[:count]
        self.stats(StatsCause.RESYNC)

    def empty_cache(self) -> None:
        for block in self.pending:
            self._release(block)
        self.pending.clear()
        self.trace.add(Kind.EMPTY_CACHE, device=-1)
        for segment in list(self.segments):
            if segment.pool == 0 and all(block.state == "free" for block in segment.blocks):
                self.segments.remove(segment)
                if not self.gives_back_silently:
                    self.trace.add(Kind.SEGMENT_FREE, address=segment.base, size_bytes=segment.size)
        self.stats(StatsCause.RELEASE)

    def _release(self, block: Block) -> None:
        block.state, block.requested, block.alloc = "free", 0, -1
        (home,) = (s for s in self.segments if block in s.blocks)
        merged: list[Block] = []
        for each in home.blocks:
            if merged and merged[-1].state == each.state == "free":
                merged[-1].size += each.size
            else:
                merged.append(each)
        home.blocks = merged

    def stats(self, cause: StatsCause) -> None:
        sums = self.totals()
        active = sums["allocated"] + sums["pending"]
        self.trace.stats(0, sums["allocated"], active, sums["reserved"], flags=cause)

    def totals(self) -> dict[str, int]:
        blocks = [block for segment in self.segments for block in segment.blocks]
        return {
            "reserved": sum(segment.size for segment in self.segments),
            "allocated": sum(block.size for block in blocks if block.state == "live"),
            "pending": sum(block.size for block in blocks if block.state == "pending"),
        }

    def causes(self) -> dict[str, int]:
        """Free bytes by cause, as `gpumemtrace.analysis.segments` defines them."""
        main = next(iter(self.asked), 0)
        for stream, asked in self.history():
            if asked[stream] > asked[main]:
                main = stream
        result = dict.fromkeys(
            ("private_pool", "other_stream", "idle", "small_pool", "interleaved"), 0
        )
        for segment in self.segments:
            free = sum(block.size for block in segment.blocks if block.state == "free")
            if segment.pool:
                cause = "private_pool"
            elif segment.stream != main:
                cause = "other_stream"
            elif free == segment.size:
                cause = "idle"
            else:
                cause = "small_pool" if segment.is_small else "interleaved"
            result[cause] += free
        return result

    def history(self) -> list[tuple[int, dict[int, int]]]:
        """Each alloc's stream, with what every stream had asked for by then."""
        asked = dict.fromkeys(self.asked, 0)
        result = []
        for row in self.trace.rows:
            if row["kind"] == Kind.ALLOC:
                asked[row.get("stream", 0)] += row["size_bytes"]
                result.append((row.get("stream", 0), dict(asked)))
        return result


SIZES = st.sampled_from([1, 512, 3000, MIB, MIB + 1, 3 * MIB, 19 * MIB, 20 * MIB + 5, 47 * MIB])


@st.composite
def runs(draw: st.DrawFn, *, silent: bool = False) -> tuple[SlowAllocator, list]:
    """An allocator after some calls, and what it held after each: (records, totals, causes)."""
    allocator = SlowAllocator(gives_back_silently=silent)
    seen = []
    for what, size, choice, stream, pool in draw(
        st.lists(
            st.tuples(
                st.sampled_from(["alloc"] * 6 + ["free"] * 4 + ["share", "finish", "empty"]),
                SIZES,
                st.integers(0, 1000),
                st.sampled_from([0, 0, 0, 0x5000]),
                st.sampled_from([0, 0, 0, 7]),
            ),
            max_size=60,
        )
    ):
        live = allocator.live()
        if what == "alloc":
            allocator.alloc(size, stream, pool=pool)
        elif what == "empty":
            allocator.empty_cache()
        elif what == "finish":
            allocator.streams_finish(choice % (len(allocator.pending) + 1))
        elif live:
            block = live[choice % len(live)][1]
            if what == "free":
                allocator.free(block)
            else:
                allocator.record_stream(block, 0x6000 + choice % 2)
        seen.append((len(allocator.trace.rows), allocator.totals(), allocator.causes()))
    return allocator, seen
