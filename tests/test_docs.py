"""Every command in the documentation runs, and says what its page says that it says."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documented import PAGES, ROOT, blocks, commands, prepare
from launch import python
from programs import PROGRAMS

import gpumemtrace
from gpumemtrace.cli.main import GROUPS, main

# What can't run in a test, each with the reason.
NOT_RUN = {
    "pip install": "changes the environment; tests/install/ does it",
    "make ": "sets up an environment of its own; .ci/run does it",
    "gpumemtrace demo": "test_cli_demo.py runs it",
    "gpumemtrace run ": "needs a GPU or the simulated one; test_run_program.py does it",
    "gpumemtrace simulate ": "runs a script of the reader's; the story's own runs below",
}
# Commands whose exit status says something: of a trace like the one here.
STATUS = {"growth": 0, "budget": 0, "check": 0, "info": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("docs")
    prepare(made)
    return made


def runnable(page: Path) -> list[str]:
    return [line for line in commands(page) if not line.startswith(tuple(NOT_RUN))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_run(
    page: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_rules = [block for block in blocks(page, "toml") if "[[category]]" in block]
    for number, line in enumerate(runnable(page)):
        arguments = shlex.split(re.split(r" \|\|? | > ", line)[0])
        assert arguments[0] == "gpumemtrace", f"{page.name}: {line}: run it here or say why not"
        here = tmp_path / str(number)
        here.mkdir()
        for path in folder.iterdir():
            (here / path.name).symlink_to(path)
        rules = (
            own_rules[0] if "--categories" in arguments else (folder / "budget.toml").read_text()
        )
        (here / "rules.toml").write_text(rules)
        monkeypatch.chdir(here)
        if "-o" in arguments:  # a name that is among the prepared ones
            Path(arguments[arguments.index("-o") + 1]).unlink(missing_ok=True)
        assert main(arguments[1:]) == STATUS.get(arguments[1], 0), f"{page.name}: {line}"


def test_every_reason_is_needed() -> None:
    every = [line for page in PAGES for line in commands(page)]
    for start in NOT_RUN:
        assert any(line.startswith(start) for line in every), start


def test_filters_are_jq_that_parses() -> None:
    jq = shutil.which("jq")
    if jq is None:
        pytest.skip("jq is not installed")
    for page in PAGES:
        for line in commands(page):
            for program in re.findall(r"\| jq (.*)$", line):
                command = [jq, "-n", f"def f: {shlex.split(program)[0]}; 0"]
                assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    recording = (ROOT / "docs" / "start.md").read_text()
    for group in GROUPS.values():
        for command in group:
            name = command.__name__.rpartition(".")[2].rstrip("_")
            assert f"gpumemtrace {name}" in page + recording, name


def test_every_page_is_in_the_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    listed = set(re.findall(r"^[\w-]+$", index, re.MULTILINE))
    assert {page.stem for page in PAGES[1:]} - {"index"} <= listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[\w-]+)?\)", prose):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    for package in ("sphinx", "myst_parser", "furo"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install --group docs")
    folders = ["-d", str(tmp_path / "doctrees"), str(ROOT / "docs"), str(tmp_path / "html")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", *folders],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "install" in (tmp_path / "html" / "python.html").read_text()


# commands.md shows marks of pytest: test_pytest_plugin.py runs such tests. figures.md:
# test_plot_command.py runs its example. long-runs.md and reading.md: test_docs_reading.py.
RUN_ELSEWHERE = {"commands.md", "figures.md", "long-runs.md", "reading.md", "story.md"}
RUN_HERE = ("recording.md", "README.md", "phases.md", "who.md")


@pytest.mark.simgpu
def test_python_examples_run(tmp_path: Path) -> None:
    with_python = {page.name for page in PAGES if blocks(page, "python")}
    assert with_python == RUN_ELSEWHERE | set(RUN_HERE)
    for page in PAGES:
        # The batches of the first example in phases.md are those of the last one too.
        examples = blocks(page, "python")[:: 1 if page.name == "who.md" else -1]
        (tmp_path / f"{page.name}.py").write_text("\n".join(examples))
    examples = [str(tmp_path / f"{name}.py") for name in RUN_HERE]
    done = python(str(PROGRAMS / "documented.py"), *examples, cwd=tmp_path)
    assert "SessionStats(events=" in done.stdout
    assert "MemoryNow(" in done.stdout
    assert len(gpumemtrace.open(tmp_path / "train.gmt").steps) == 2
    assert "head" in gpumemtrace.open(tmp_path / "who.gmt").sites.module_names
    assert "rollout" in gpumemtrace.open(tmp_path / "run.gmt").phase_names
    trace = gpumemtrace.open(tmp_path / "phases.gmt")
    assert {"train/forward/clip", "train/distill/eval", "train/data", "rollout"} <= {
        "/".join(path) for path in trace.phase_paths
    }
    assert trace.steps.number[-1] >= 10


@pytest.mark.simgpu
def test_the_story_tells_what_happens(tmp_path: Path) -> None:
    page = ROOT / "docs" / "story.md"
    (tmp_path / "train.py").write_text(blocks(page, "python")[0])
    printed = []
    for line in commands(page):
        arguments = shlex.split(line)[1:]
        assert arguments[0] in ("simulate", "info", "summary", "phases", "peak", "compare")
        done = python("-m", "gpumemtrace", *arguments, cwd=tmp_path, env={"COLUMNS": "200"})
        printed += [" ".join(text.split()) for text in done.stdout.splitlines()]
    shown = [text for block in blocks(page, "text") for text in block.splitlines()]
    assert len(shown) >= 25
    for text in shown:
        parts = [re.escape(" ".join(part.split())) for part in text.split("…")]
        pattern = re.compile(".*".join(parts))
        assert any(pattern.match(candidate) for candidate in printed), text
