"""The examples in docs/reading.md run, one after the other, as a reader would type them."""

from __future__ import annotations

import re
from pathlib import Path

import recorded

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reading.md"


def test_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recorded.load("gpt2")[0].save("train.gmt")
    namespace: dict[str, object] = {}
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
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
