"""Which of several processes this one is."""

from __future__ import annotations

import os
import sys

__all__ = ["local_rank", "rank", "world_size"]

# torchrun; Open MPI; Slurm; MPICH and Intel MPI.
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID")
_WORLD_SIZE = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", "PMI_SIZE")


def rank() -> int:
    """Return this process's rank; 0 when nobody has said anything."""
    return _from_torch("get_rank", _from_environment(_RANK, 0))


def local_rank() -> int:
    """Return the rank within this host; the rank itself when only that is known."""
    return _from_environment(_LOCAL_RANK, rank())


def world_size() -> int:
    """Return how many processes there are; 1 when nobody has said anything."""
    return _from_torch("get_world_size", _from_environment(_WORLD_SIZE, 1))


def _from_environment(names: tuple[str, ...], default: int) -> int:
    for name in names:
        text = os.environ.get(name, "")
        if text.isdecimal():
            return int(text)
    return default


def _from_torch(function: str, default: int) -> int:
    """Ask ``torch.distributed`` if it is there and set up (spawned workers set no variables)."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_initialized():
            return int(getattr(distributed, function)())
    except Exception:  # half imported, or a backend that fails: the environment's word stands
        pass
    return default
