"""Record the programs in tests/programs, and read where the trace puts their telltale sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from runpy import run_path

from simgpu import run_simulated

import gpumemtrace
from gpumemtrace.trace import Trace

__all__ = ["PLACE_OF", "PROGRAMS", "places", "record_programs"]

PROGRAMS = Path(__file__).parent.parent / "programs"
# Run instead of imported: the folder is no part of this process's path, and has names of its own.
PLACE_OF = {size: place for place, size in run_path(str(PROGRAMS / "telltale.py"))["SIZE"].items()}

# One torch import for all; each program is run as it is, as __main__.
_DRIVER = """
import runpy, sys
import torch
import gpumemtrace
folder, programs, *names = sys.argv[1:]
sys.path.insert(0, programs)
for name in names:
    sys.argv = [name, folder]
    with gpumemtrace.install(f"{folder}/{name}.gmt"):
        runpy.run_path(f"{programs}/{name}.py", run_name="__main__")
"""


def record_programs(names: Sequence[str], folder: Path) -> dict[str, Trace]:
    """Run the programs on the simulated GPU, one after the other in one process."""
    run_simulated(_DRIVER, args=[str(folder), str(PROGRAMS), *names])
    return {name: gpumemtrace.open(folder / f"{name}.gmt") for name in names}


def places(trace: Trace) -> Counter[tuple[str, str, int]]:
    """Return how often each place was noted, with the phase and step that the trace gives it."""
    found: Counter[tuple[str, str, int]] = Counter()
    columns = trace.columns("kind", "size_bytes", "phase", "step")
    for kind, size, phase, step in zip(*columns.values(), strict=True):
        if kind == 1 and int(size) in PLACE_OF:
            found[PLACE_OF[int(size)], trace.phase_name(int(phase)) or "", int(step)] += 1
    return found
