"""The GPUs that can be simulated, and where each of their figures comes from.

PyTorch's memory use depends on the card through few of them: memory (where it runs out), compute
capability (which kernels, whose workspaces: cuBLAS gets 8 MiB before 9.0 and 32 MiB from it on) and
the number of SMs. The others are there for scripts that look at them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from gpumemtrace.errors import InstallError
from gpumemtrace.units import GIB, KIB, MIB, parse_bytes

__all__ = ["PROFILES", "GpuProfile", "find_profile", "make_profile"]

# In use by a context (and the driver) before the first allocation, recorded on an H200 with driver
# 580.159 and CUDA 13.0 (tests/data/cudamalloc_h200_process1.txt: 150,109,880,320 bytes in all less
# 149,557,477,376 free). Taken for the other cards too: no recording of theirs is at hand.
_H200_CONTEXT_BYTES = 552_402_944


@dataclass(frozen=True)
class _PerSm:
    """Limits that the compute capability sets, per SM."""

    threads: int
    blocks: int
    shared_bytes: int
    shared_optin_bytes: int


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". What is not here
# takes the next one below it.
_PER_SM = {
    (7, 0): _PerSm(2048, 32, 96 * KIB, 96 * KIB),
    (7, 5): _PerSm(1024, 16, 64 * KIB, 64 * KIB),
    (8, 0): _PerSm(2048, 32, 164 * KIB, 163 * KIB),
    (8, 6): _PerSm(1536, 16, 100 * KIB, 99 * KIB),
    (8, 7): _PerSm(1536, 16, 164 * KIB, 163 * KIB),
    (8, 9): _PerSm(1536, 24, 100 * KIB, 99 * KIB),
    (9, 0): _PerSm(2048, 32, 228 * KIB, 227 * KIB),
    (10, 0): _PerSm(2048, 32, 228 * KIB, 227 * KIB),
    (10, 3): _PerSm(2048, 32, 228 * KIB, 227 * KIB),
    (12, 0): _PerSm(1536, 24, 100 * KIB, 99 * KIB),
}

# SMs of a card with that compute capability, for `--memory` without `--sm-count`: V100, T4, A100,
# A10, Orin, L40S, H100, B200, B300, RTX 5090, GB10.
_USUAL_SM_COUNT = {
    (7, 0): 80,
    (7, 5): 40,
    (8, 0): 108,
    (8, 6): 72,
    (8, 7): 16,
    (8, 9): 142,
    (9, 0): 132,
    (10, 0): 148,
    (10, 3): 148,
    (12, 0): 170,
    (12, 1): 48,
}
# The first and the last that can be asked for, the digit after the point aside.
_FIRST_MAJOR, _LAST_MAJOR = 7, 12

_T = TypeVar("_T")


@dataclass(frozen=True)
class GpuProfile:
    """One card. Sizes in bytes, clocks in kHz."""

    key: str
    """What ``--gpu`` takes, lower case."""
    name: str
    """What CUDA calls it."""
    memory_bytes: int
    """``cudaDeviceProp.totalGlobalMem`` where `memory_source` says so."""
    memory_source: str
    compute_capability: tuple[int, int]
    sm_count: int
    l2_bytes: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    source: str
    """Where the figures after the compute capability come from."""
    aliases: tuple[str, ...] = ()
    context_bytes: int = _H200_CONTEXT_BYTES

    @property
    def compute_capability_text(self) -> str:
        """For example ``"9.0"``."""
        return "{}.{}".format(*self.compute_capability)

    def sim_variables(self) -> dict[str, str]:
        """Return the environment variables that describe this card to the simulated GPU."""
        per_sm = _nearest(_PER_SM, self.compute_capability)
        values = {
            "NAME": self.name,
            "MEMORY_BYTES": self.memory_bytes,
            "CONTEXT_BYTES": min(self.context_bytes, self.memory_bytes),
            "COMPUTE_CAPABILITY": self.compute_capability_text,
            "SM_COUNT": self.sm_count,
            "THREADS_PER_SM": per_sm.threads,
            "BLOCKS_PER_SM": per_sm.blocks,
            "SHARED_PER_SM": per_sm.shared_bytes,
            "SHARED_PER_BLOCK_OPTIN": per_sm.shared_optin_bytes,
            "L2_BYTES": self.l2_bytes,
            "CLOCK_KHZ": self.clock_khz,
            "MEMORY_CLOCK_KHZ": self.memory_clock_khz,
            "MEMORY_BUS_BITS": self.memory_bus_bits,
        }
        return {f"GPUMEMTRACE_SIM_{key}": str(value) for key, value in values.items()}


PROFILES: tuple[GpuProfile, ...] = (
    GpuProfile(
        key="h200",
        name="NVIDIA H200",
        memory_bytes=150_109_880_320,
        memory_source="reported by CUDA 13.0 (recorded)",
        compute_capability=(9, 0),
        sm_count=132,
        l2_bytes=62_914_560,
        clock_khz=1_980_000,
        memory_clock_khz=3_201_000,
        memory_bus_bits=6016,
        source="device properties recorded on the card (tests/data/cudamalloc_h200_process1.txt)",
        aliases=("h200-141gb", "h200-sxm"),
    ),
    GpuProfile(
        key="h100",
        name="NVIDIA H100 80GB HBM3",
        memory_bytes=81_089 * MIB,
        memory_source="torch 2.7's device properties (stas00/ml-engineering, network log)",
        compute_capability=(9, 0),
        sm_count=132,
        l2_bytes=50 * MIB,
        clock_khz=1_980_000,
        memory_clock_khz=2_619_000,
        memory_bus_bits=5120,
        source="NVIDIA H100 Tensor Core GPU Architecture whitepaper (SXM5)",
        aliases=("h100-80gb", "h100-sxm", "h100-80gb-sxm"),
    ),
    GpuProfile(
        key="a100-80gb",
        name="NVIDIA A100-SXM4-80GB",
        memory_bytes=81_920 * MIB,
        memory_source="nominal (nvidia-smi's total); CUDA reports about 1 % less",
        compute_capability=(8, 0),
        sm_count=108,
        l2_bytes=40 * MIB,
        clock_khz=1_410_000,
        memory_clock_khz=1_593_000,
        memory_bus_bits=5120,
        source="NVIDIA A100 80GB datasheet; A100 Tensor Core GPU Architecture whitepaper",
        aliases=("a100", "a100-80g", "a100-sxm4-80gb"),
    ),
    GpuProfile(
        key="a100-40gb",
        name="NVIDIA A100-SXM4-40GB",
        memory_bytes=42_298_834_944,
        memory_source="CUDA's deviceQuery (bottlerocket-os/bottlerocket pull request 3873)",
        compute_capability=(8, 0),
        sm_count=108,
        l2_bytes=40 * MIB,
        clock_khz=1_410_000,
        memory_clock_khz=1_215_000,
        memory_bus_bits=5120,
        source="NVIDIA A100 Tensor Core GPU Architecture whitepaper",
        aliases=("a100-40g", "a100-sxm4-40gb"),
    ),
    GpuProfile(
        key="l40s",
        name="NVIDIA L40S",
        memory_bytes=45_589 * MIB,
        memory_source="torch's device properties (a public cluster guide's log)",
        compute_capability=(8, 9),
        sm_count=142,
        l2_bytes=96 * MIB,
        clock_khz=2_520_000,
        memory_clock_khz=9_001_000,
        memory_bus_bits=384,
        source="NVIDIA L40S datasheet; NVIDIA Ada GPU Architecture whitepaper",
        aliases=("l40s-48gb",),
    ),
    GpuProfile(
        key="l4",
        name="NVIDIA L4",
        memory_bytes=23_612_293_120,
        memory_source="CUDA's deviceQuery (a public cloud set-up log, driver 525)",
        compute_capability=(8, 9),
        sm_count=58,
        l2_bytes=48 * MIB,
        clock_khz=2_040_000,
        memory_clock_khz=6_251_000,
        memory_bus_bits=192,
        source="NVIDIA L4 datasheet; NVIDIA Ada GPU Architecture whitepaper",
        aliases=("l4-24gb",),
    ),
    GpuProfile(
        key="rtx4090",
        name="NVIDIA GeForce RTX 4090",
        memory_bytes=24_564 * MIB,
        memory_source="nominal (nvidia-smi's total); CUDA reports about 1.5 % less",
        compute_capability=(8, 9),
        sm_count=128,
        l2_bytes=72 * MIB,
        clock_khz=2_520_000,
        memory_clock_khz=10_501_000,
        memory_bus_bits=384,
        source="NVIDIA Ada GPU Architecture whitepaper",
        aliases=("4090", "rtx-4090", "geforce-rtx-4090"),
    ),
    GpuProfile(
        key="t4",
        name="Tesla T4",
        memory_bytes=15_102 * MIB,
        memory_source="torch 2.2's device properties (public notebook logs)",
        compute_capability=(7, 5),
        sm_count=40,
        l2_bytes=4 * MIB,
        clock_khz=1_590_000,
        memory_clock_khz=5_001_000,
        memory_bus_bits=256,
        source="NVIDIA T4 datasheet; NVIDIA Turing GPU Architecture whitepaper",
        aliases=("tesla-t4", "t4-16gb"),
    ),
)


def find_profile(name: str) -> GpuProfile:
    """Return the profile that ``name`` means, whatever its case and separators.

    Raises `InstallError` for a card without a profile; the message lists those there are.
    """
    wanted = _normalize(name)
    for profile in PROFILES:
        names = (profile.key, profile.name, *profile.aliases)
        if wanted in {_normalize(candidate) for candidate in names}:
            return profile
    known = ", ".join(profile.key for profile in PROFILES)
    raise InstallError(
        f"no profile for a GPU named {name!r}: there are {known}; for any other card give "
        "--memory and --compute-capability"
    )


def make_profile(
    memory: str | int, compute_capability: str, *, sm_count: int | None = None
) -> GpuProfile:
    """Return a profile for a card of ``memory`` (bytes, or a text like ``"24GiB"``).

    ``compute_capability`` is a text like ``"8.9"``; ``sm_count`` defaults to that of a usual card
    with it. Raises `InstallError` for what makes no sense.
    """
    memory_bytes = _check_memory(memory)
    capability = _check_compute_capability(compute_capability)
    if sm_count is not None and sm_count < 1:
        raise InstallError(f"--sm-count {sm_count}: a GPU has at least one SM")
    return GpuProfile(
        key=f"{memory_bytes / GIB:g}GiB-sm{capability[0]}{capability[1]}",
        name=f"Simulated GPU ({memory_bytes / GIB:g} GiB, {capability[0]}.{capability[1]})",
        memory_bytes=memory_bytes,
        memory_source="as asked for",
        compute_capability=capability,
        sm_count=sm_count or _nearest(_USUAL_SM_COUNT, capability),
        l2_bytes=40 * MIB,
        clock_khz=1_410_000,
        memory_clock_khz=1_215_000,
        memory_bus_bits=5120,
        source="an A100's, for want of a card",
        context_bytes=0,
    )


def _check_memory(memory: str | int) -> int:
    try:
        memory_bytes = parse_bytes(memory) if isinstance(memory, str) else memory
    except ValueError as error:
        raise InstallError(f"--memory: {error}") from None
    if not 64 * MIB <= memory_bytes <= 16 * 1024 * GIB:
        raise InstallError(f"--memory {memory}: from 64 MiB to 16 TiB can be simulated")
    return memory_bytes


def _check_compute_capability(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"\s*(\d{1,2})\.(\d)\s*", text)
    if match is None:
        raise InstallError(
            f"--compute-capability {text!r} is not two numbers like 9.0 or 12.1, as "
            "torch.cuda.get_device_capability() tells them"
        )
    capability = int(match[1]), int(match[2])
    if not _FIRST_MAJOR <= capability[0] <= _LAST_MAJOR:
        raise InstallError(
            f"--compute-capability {text}: from {_FIRST_MAJOR}.0 (V100) to {_LAST_MAJOR}.9 can be "
            "simulated, such as 9.0 (H100)"
        )
    return capability


def _nearest(table: Mapping[tuple[int, int], _T], capability: tuple[int, int]) -> _T:
    """Return the entry for a compute capability, or for the next one below it."""
    return table[max(known for known in table if known <= capability)]


def _normalize(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).lower().removeprefix("nvidia")
