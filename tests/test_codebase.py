"""What this repository promises about itself: layers, versions, names, sizes, commands."""

import ast
import graphlib
import importlib.metadata
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpumemtrace

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"

# What each folder of csrc/ may include besides itself; simgpu stands apart.
LAYERS: dict[str, set[str]] = {
    "trace": set(),
    "compute": {"trace"},
    "ageing": {"trace", "compute"},
    "capture": {"trace", "compute", "ageing"},
    "torch": {"trace", "capture"},
    "python": {"trace", "ageing", "capture", "compute"},
    "simgpu": set(),
}


def sources_of(*suffixes: str) -> list[Path]:
    """Every file of ours with one of these suffixes."""
    folders = ["cmake", "csrc", "gpumemtrace", "tests", "benchmarks", ".ci"]
    files = [f for folder in folders for f in sorted((ROOT / folder).rglob("*"))]
    return [f for f in files if f.suffix in suffixes and f.is_file()]


def includes_of(file: Path) -> Iterator[Path]:
    """The files of csrc/ that a native file includes."""
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', file.read_text(), re.MULTILINE):
        for folder in (CSRC, file.parent):
            if (folder / name).is_file():
                yield (folder / name).resolve()
                break


def native_files() -> list[Path]:
    """Every file of csrc/ that can include another one."""
    return [f for f in sources_of(".h", ".cc", ".c") if f.is_relative_to(CSRC)]


def folder_of(file: Path) -> str:
    """The folder of csrc/ in which a file lies."""
    return file.relative_to(CSRC).parts[0]


def identifier(file: Path) -> str:
    """A file as messages name it: its path from the root."""
    return str(file.relative_to(ROOT))


def test_every_native_folder_has_its_place() -> None:
    with_code = {folder_of(file) for file in native_files()} - {"cuda_compat"}
    assert with_code <= LAYERS.keys()


def test_native_includes_go_down() -> None:
    upward = [
        f"{identifier(file)} includes {identifier(included)}"
        for file in native_files()
        for included in includes_of(file)
        if folder_of(included) not in {folder_of(file)} | LAYERS.get(folder_of(file), set())
    ]
    assert not upward


def unit_of(file: Path) -> str:
    """A header and its source are one unit; so is ``a_b.h``, without a source, part of ``a``."""
    stem = file.with_suffix("")
    outer = file.with_name(f"{stem.name.rpartition('_')[0]}.h")
    has_source = any(stem.with_suffix(suffix).is_file() for suffix in (".cc", ".c"))
    return identifier(outer.with_suffix("") if outer.is_file() and not has_source else stem)


def test_native_units_have_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for file in native_files():
        used = {unit_of(included) for included in includes_of(file)}
        graph.setdefault(unit_of(file), set()).update(used - {unit_of(file)})
    tuple(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the circle


# C89: what depends on the machine; the records' sizes and places are asserted there.
@pytest.mark.parametrize("unit", ["capture/clock.cc", "capture/ring.cc", "trace/crc32c.cc"])
def test_it_compiles_for_aarch64(unit: str) -> None:
    compiler = shutil.which("aarch64-linux-gnu-g++")
    if compiler is None:
        pytest.skip("no compiler for aarch64 (apt install g++-aarch64-linux-gnu)")
    options = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{CSRC}"]
    done = subprocess.run(
        [compiler, *options, CSRC / unit], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_one_version() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    (version,) = re.findall(r'^version = "(.+)"$', pyproject, re.MULTILINE)
    assert gpumemtrace.__version__ == version
    assert importlib.metadata.version("gpumemtrace") == version
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_build_group_covers_what_pip_builds_with() -> None:
    # The Makefile builds without isolation, from the group; pip builds from [build-system].
    pyproject = (ROOT / "pyproject.toml").read_text()
    (build_system,) = re.findall(r"^requires = (\[.*\])$", pyproject, re.MULTILINE)
    (group,) = re.findall(r"^build = (\[.*\])$", pyproject, re.MULTILINE)
    assert set(ast.literal_eval(build_system)) <= set(ast.literal_eval(group))


def public_modules() -> list[Path]:
    """Every module whose name doesn't begin with an underscore, and each package's own."""
    modules = sorted((ROOT / "gpumemtrace").rglob("*.py"))
    return [m for m in modules if not m.name.startswith("_") or m.name == "__init__.py"]


def test_public_modules_say_what_is_public() -> None:
    silent = []
    for module in public_modules():
        body = ast.parse(module.read_text()).body
        if module.name == "__init__.py" and len(body) == 1:
            continue  # a folder with nothing of its own
        assigned = [n for n in body if isinstance(n, ast.Assign | ast.AnnAssign)]
        targets = [t for n in assigned for t in getattr(n, "targets", [getattr(n, "target", None)])]
        if "__all__" not in {t.id for t in targets if isinstance(t, ast.Name)}:
            silent.append(identifier(module))
    assert not silent, "__all__ is missing"


def test_long_files_give_a_reason() -> None:
    # The reason is a comment near the top that says "over 400 lines" and why.
    long = []
    for file in sources_of(".py", ".pyi", ".h", ".cc", ".c", ".cmake"):
        lines = file.read_text().splitlines()
        if len(lines) > 400 and "over 400 lines" not in "\n".join(lines[:40]).lower():
            long.append(f"{identifier(file)}: {len(lines)} lines")
    assert not long


def tracked_files() -> list[Path]:
    """Every file that git knows, where this is a checkout."""
    run = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if run.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in run.stdout.decode().split("\0") if name]
    return [file for file in files if file.is_file()]


def test_no_file_names_somebodys_machine() -> None:
    # Anywhere else such a path means nothing, or worse: something else.
    machine = re.compile(rb"(?<![\w.$})/-])/(?:root|opt|home|work|mnt|scratch)/\w")
    named = [
        f"{identifier(file)}:{number}: {line.decode(errors='replace').strip()}"
        for file in tracked_files()
        for number, line in enumerate(file.read_bytes().splitlines(), 1)
        if machine.search(line)
    ]
    assert not named, "\n".join(named)


def documented_commands() -> list[tuple[Path, str]]:
    """Each command line in the code blocks of the documentation, with its file."""
    found = []
    for file in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        text = file.read_text() if file.is_file() else ""
        for language, block in re.findall(r"^```(.*?)\n(.*?)^```", text, re.M | re.S):
            if language not in ("", "sh", "bash", "console", "shell"):
                continue
            for line in block.replace("\\\n", " ").splitlines():
                command = line.strip().removeprefix("$ ").split("  #")[0].strip()
                found += [(file, part.strip()) for part in command.split("&&")]
    return found


def commands_of(program: str) -> list[tuple[Path, list[str]]]:
    """The documented command lines of one program, as words without the program's name."""
    split = [(file, shlex.split(command)) for file, command in documented_commands()]
    return [(file, words[1:]) for file, words in split if words[:1] == [program]]


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([\w.-]+)(?: [\w.-]+)*:", (ROOT / "Makefile").read_text(), re.M))
    for file, words in commands_of("make"):
        named = {word for word in words if "=" not in word and not word.startswith("-")}
        assert named <= targets, f"{identifier(file)}: make {' '.join(words)}"


def test_documented_gpumemtrace_commands_exist() -> None:
    from gpumemtrace.cli.main import build_parser

    parser = build_parser()
    for file, words in commands_of("gpumemtrace"):
        place = f"{identifier(file)}: gpumemtrace {' '.join(words)}"
        known = {option for action in parser._actions for option in action.option_strings}
        if words and not words[0].startswith("-"):
            subparsers = parser._subparsers._group_actions[0].choices
            assert words[0] in subparsers, place
            actions = subparsers[words[0]]._actions
            known |= {option for action in actions for option in action.option_strings}
            if words[0] in {"run", "simulate"}:  # what follows the script is the script's own
                words = words[: next((i for i, w in enumerate(words) if ".py" in w), len(words))]
        options = {word.split("=")[0] for word in words if word.startswith("-")}
        assert options <= known, place
