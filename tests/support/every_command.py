"""How to call each command on a prepared folder; a new command has to be added here."""

from __future__ import annotations

from pathlib import Path

from fragmented import train_and_eval

from gpumemtrace.cli.main import COMMANDS, build_parser, main

__all__ = ["FILES", "MAKES_FILES", "NAMES", "NO_TRACE", "prepare"]

# What each command is given. Where a file stands first, that is the one it reads.
FILES: dict[str, list[str]] = {
    "top": ["train.gmt"],
    "info": ["train.gmt"],
    "check": ["train.gmt"],
    "summary": ["train.gmt"],
    "peak": ["train.gmt"],
    "growth": ["train.gmt"],
    "phases": ["train.gmt"],
    "times": ["train.gmt"],
    "fragmentation": ["train.gmt"],
    "oom": ["train.gmt"],
    "compare": ["train.gmt", "--steps-a", "2:6", "--steps-b", "6:10"],
    "budget": ["train.gmt", "rules.toml"],
    "plot": ["train.gmt", "-f", "-o", "out.png"],
    "report": ["train.gmt", "-f", "-o", "out.html"],
    "export": ["train.gmt", "--to", "csv", "-f", "-o", "out.csv"],
    "import": ["snapshot.pickle", "-f", "-o", "out.gmt"],
}
MAKES_FILES = {"plot", "report", "export", "import"}
# They run a program, or read nothing.
NO_TRACE = {"demo", "run", "simulate", "completion"}


def _names() -> list[str]:
    parser = build_parser()
    return [name for names in parser.groups.values() for name in names]  # type: ignore[attr-defined]


NAMES = _names()
assert len(NAMES) == len(COMMANDS)


def prepare(folder: Path) -> None:
    """Write the trace, the rules and the snapshot that `FILES` names."""
    train_and_eval()[0].trace().save(folder / "train.gmt")
    (folder / "rules.toml").write_text('[[limit]]\nmax = "24 GiB"\nphase = "train"\n')
    snapshot = str(folder / "snapshot.pickle")
    assert (
        main(["export", "-q", str(folder / "train.gmt"), "--to", "memory_viz", "-o", snapshot]) == 0
    )
