"""Examples in the documentation: the blocks of a page, and files for its commands to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from synthetic import MIB, TraceBuilder

from gpumemtrace.cli.main import main
from gpumemtrace.schema import Kind

__all__ = ["PAGES", "blocks", "commands", "prepare"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_STEPS = 1010
_RULES = """
[[limit]]
phase = "backward"
max = "24 GiB"

[[growth]]
max_per_step = "1 KiB"
"""


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[str]:
    """Yield the command lines in ``sh`` blocks, without comments."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if command := re.split(r"(?:^|\s+)#", line)[0].strip():
                yield command


def prepare(folder: Path) -> None:
    """Write every file that the commands in the documentation read."""
    for name in ("train", "run", "a", "b", "before", "after", "rank0", "rank1", "with_grad"):
        if name in ("train", "before"):
            _trace(megabytes=8 if name == "train" else 6).save(folder / f"{name}.gmt")
        else:
            (folder / f"{name}.gmt").symlink_to(folder / "train.gmt")
    (folder / "budget.toml").write_text(_RULES)
    snapshot = str(folder / "snapshot.pickle")
    arguments = ["export", "-q", str(folder / "train.gmt"), "--to", "memory_viz", "-o", snapshot]
    assert main([*arguments, "--steps", "0:3"]) == 0


def _trace(megabytes: int):
    """Two GPUs; each step makes two blocks in forward, frees them in backward."""
    builder = TraceBuilder(run_record={"script": "train", "argv": ["train.py"]})
    bases = {0: 1 << 40, 1: 1 << 41}
    size = megabytes * MIB
    builder.phase("init")
    for device, base in bases.items():
        builder.add(Kind.SEGMENT_ALLOC, address=base, size_bytes=4 * size, device=device)
        builder.alloc(base, size, device=device)
        builder.stats(size, size, size, 4 * size, device=device)
    for step in range(_STEPS):
        builder.phase("forward")
        for device, base in bases.items():
            site = builder.site("layers.0", ("/code/train.py", 7, "forward"), root="Net")
            builder.alloc(base + size, size, device=device, site=site)
            builder.alloc(base + 2 * size, size, device=device, site=site)
        builder.phase("backward")
        for device, base in bases.items():
            builder.free(base + size, device=device)
            builder.free(base + 2 * size, device=device)
        builder.phase("optimizer")
        builder.step(step + 1, after_ns=1_000_000)
    return builder.trace()
