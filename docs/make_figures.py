"""Make the pictures of docs/figures.md and of the README, from runs on the simulated GPU.

python docs/make_figures.py [KIND ...]     all of them, or some; needs torch, takes half a minute
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).resolve().parent
DEMO = HERE.parent / "gpumemtrace" / "demo" / "train_gpt.py"
VARIABLE = HERE / "variable_length_gpt.py"
# A palette that keeps rare colours too: a key's swatch is a few pixels.
COLORS = 128
MOST_BYTES = 100_000

RUNS = {
    "demo": [DEMO],
    "owned": ["--modules", "--stacks", "python", DEMO],
    "train": [VARIABLE, "--steps", "300"],
    "checkpointed": [VARIABLE, "--steps", "300", "--checkpoint"],
    "leak": [VARIABLE, "--steps", "60", "--keep-logits"],
}

# Picture -> the arguments of `gpumemtrace plot` and the runs that it shows.
PICTURES: dict[str, tuple[list[str], list[str]]] = {
    "demo": (["--steps", "8:12", "--size", "12x5"], ["demo"]),
    "timeline": (["--steps", "8:12", "--size", "10x4.5"], ["demo"]),
    "timeline-dark": (["--steps", "8:12", "--size", "10x4.5", "--style", "dark"], ["demo"]),
    "phases": (["--kind", "phases", "--size", "10x4"], ["train"]),
    "categories": (["--kind", "categories", "--steps", "8:11", "--size", "10x4.5"], ["demo"]),
    "peak": (["--kind", "peak", "--size", "10x5.5"], ["train"]),
    "modules": (["--kind", "modules", "--size", "10x7"], ["owned"]),
    "growth": (["--kind", "growth", "--size", "10x4"], ["leak"]),
    "fragmentation": (
        ["--kind", "fragmentation", "--steps", "20:24", "--size", "10x5.5"],
        ["train"],
    ),
    "sizes": (["--kind", "sizes", "--size", "10x4"], ["train"]),
    "lifetimes": (["--kind", "lifetimes", "--size", "10x4"], ["train"]),
    "compare": (["--size", "10x6.5"], ["train", "checkpointed"]),
}


def main() -> None:
    """Trace the runs that are needed, draw each picture, and make its file small."""
    names = sys.argv[1:] or list(PICTURES)
    if unknown := [name for name in names if name not in PICTURES]:
        raise SystemExit(f"no picture {unknown[0]!r}: there are {', '.join(PICTURES)}")
    with tempfile.TemporaryDirectory() as folder:
        for run in dict.fromkeys(run for name in names for run in PICTURES[name][1]):
            program = [str(part) for part in RUNS[run]]
            gpumemtrace("simulate", "-q", "-o", trace_of(folder, run), *program)
        for name in names:
            options, runs = PICTURES[name]
            prefix = "" if name == "demo" else "figure-"
            picture = HERE / "images" / f"{prefix}{name}.png"
            traces = [trace_of(folder, run) for run in runs]
            gpumemtrace("plot", "-qf", *traces, *options, "-o", str(picture))
            make_small(picture)
            print(f"{picture}: {picture.stat().st_size:,} bytes")


def trace_of(folder: str, run: str) -> str:
    """Return the file of a run."""
    return str(Path(folder) / f"{run}.gmt")


def gpumemtrace(*arguments: str) -> None:
    """Run one command."""
    entry = "import sys; from gpumemtrace.cli.main import main; sys.exit(main())"
    subprocess.run([sys.executable, "-c", entry, *arguments], check=True, cwd="/")


def make_small(picture: Path) -> None:
    """Write a PNG anew with a palette, two thirds as large; refuse one that stays large."""
    image = Image.open(picture).convert("RGB")
    small = image.resize((image.width * 2 // 3, image.height * 2 // 3), Image.Resampling.LANCZOS)
    small.quantize(COLORS, Image.Quantize.MAXCOVERAGE).save(picture, optimize=True)
    if picture.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{picture}: {picture.stat().st_size:,} bytes, at most {MOST_BYTES:,}")


if __name__ == "__main__":
    main()
