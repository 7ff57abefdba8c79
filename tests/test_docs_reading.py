"""The examples in docs/reading.md, and that of long-runs.md, run as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path

import aged
import recorded

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "reading.md"


def examples_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recorded.load("gpt2")[0].save("train.gmt")
    namespace: dict[str, object] = {}
    examples = examples_of(PAGE)
    assert len(examples) >= 9
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), namespace)
    out = capsys.readouterr().out
    assert "126,925 events, 60 steps, phases init, data, forward, backward" in out
    assert "3.131 GiB in backward, step 1" in out
    assert "449 blocks are alive at the end" in out
    assert "stable 0.0 bytes per step" in out
    assert "3,362,081,792 bytes in step 1, backward" in out
    assert "activation       1,369,258,496 bytes in 248 blocks" in out
    assert "gradient 296 blocks {'gradient_size'}" in out
    assert "segments known: False" in out
    assert Path("steps.png").stat().st_size > 10_000
    assert Path("mine.svg").is_file()


def test_the_steps_that_have_aged_are_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = aged.Run()
    aged.write(tmp_path / "train.gmt", run.steps(1000), run.names(), max_disk_bytes=aged.MIB)
    (example,) = examples_of(DOCS / "long-runs.md")
    exec(compile(example, "long-runs.md", "exec"), {})
    assert re.match(
        r"\d{2,3} steps are summaries; in full detail: \(\(0, \d+\), .*, 999\)\)\n$",
        capsys.readouterr().out,
    )
