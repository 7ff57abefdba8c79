"""GIVEN a trace, WHEN `plot` is asked for any figure, THEN there is its file or a clear error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import recorded
import scenarios

from gpumemtrace.cli.main import main
from gpumemtrace.plot import KINDS

DOCS = Path(__file__).resolve().parent.parent / "docs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plot")
    scenarios.two_devices().trace().save(folder / "a.gmt")
    scenarios.out_of_memory().trace().save(folder / "b.gmt")
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_every_kind_in_every_format(folder, kind, suffix, start, capsys):
    output = folder / f"{kind}.{suffix}"
    others = [str(folder / "b.gmt")] if kind == "compare" else []
    arguments = ["plot", str(folder / "a.gmt"), *others, "--kind", kind, "-o", str(output)]
    assert main([*arguments, "--size", "8x5"]) == 0
    assert output.read_bytes().startswith(start)
    assert capsys.readouterr().out.startswith(f"Wrote {output}\nNext: gpumemtrace ")


def test_two_traces_are_compared(folder, capsys):
    a, b = str(folder / "a.gmt"), str(folder / "b.gmt")
    assert main(["plot", a, b]) == 0
    assert (folder / "a.compare.png").stat().st_size > 10_000
    assert f"Next: gpumemtrace compare {a} {b}" in capsys.readouterr().out
    assert main(["plot", "-f", a, "--kind", "compare", "--steps-a", "0", "--steps-b", "1:3"]) == 0


def test_the_name_has_the_kind(folder, capsys):
    assert main(["plot", str(folder / "b.gmt"), "--kind", "peak"]) == 0
    assert (folder / "b.peak.png").is_file()


@pytest.mark.parametrize("style", ["dark", "ggplot", "mine.mplstyle"])
def test_styles(folder, style, monkeypatch):
    monkeypatch.chdir(folder)
    Path("mine.mplstyle").write_text("axes.facecolor: ffffcc\n")
    assert main(["plot", "-fq", "a.gmt", "--style", style, "-o", "s.svg"]) == 0
    page = {"dark": "#1b1e24", "ggplot": "#e5e5e5", "mine.mplstyle": "#ffffcc"}[style]
    assert page in Path("s.svg").read_text()


def test_part_of_the_time(folder, capsys):
    output = folder / "t.svg"
    arguments = ["plot", "-f", str(folder / "a.gmt"), "-o", str(output), "--time"]
    assert main([*arguments, "0.05:0.1"]) == 0
    assert "showing" in output.read_text()
    assert main([*arguments, "5:6"]) == 1
    assert "no record in 5:6 s: the trace has 1e-06 to 0.17" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--style", "nope"], "no style 'nope': it must be light, dark, a file, or"),
        (["--style", "a.gmt"], "a.gmt is no style sheet of matplotlib's"),
        (["--kind", "compare"], "give two traces, or one with --steps-a and --steps-b"),
        (["--kind", "peak", "--steps-a", "1"], "plot --kind peak shows one trace"),
        (["b.gmt", "--steps", "1:2"], "--kind compare takes --steps-a and --steps-b"),
    ],
)
def test_what_does_not_go_together(folder, arguments, told, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["plot", "-f", "a.gmt", *arguments, "-o", "x.png"]) == 1
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--time", "1"], ["--time", "a:b"], ["--kind", "pie"]])
def test_wrong_arguments(folder, arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["plot", str(folder / "a.gmt"), *arguments])
    assert stop.value.code == 2
    assert arguments[0] in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_in_the_gallery_with_a_small_picture(kind):
    page = (DOCS / "figures.md").read_text()
    (picture,) = re.findall(rf"!\[[^]]+\]\((images/figure-{kind}\.png)\)", page)
    assert (DOCS / picture).stat().st_size < 100_000
    assert f"--kind {kind}" in page or kind == "timeline"


def test_the_example_in_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorded.load("gpt2")[0].save("train.gmt")
    (example,) = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "figures.md").read_text(), re.MULTILINE | re.DOTALL
    )
    exec(compile(example, "figures.md", "exec"), {})
    assert Path("peak.png").stat().st_size > 10_000
    assert Path("kept.pdf").read_bytes().startswith(b"%PDF")
