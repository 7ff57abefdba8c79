"""Installing into other environments, as a user does: plain pip, with its build isolation.

Slow (it builds the package several times) and in need of a package index, so not among the tests
that `make test` collects: `make test-install` names this file. Each environment is a new one; what
is heavy in it (torch, numpy) comes through a .pth file from another one.
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from gpumemtrace import build_info

# Each builds the package at least once: minutes, where the machine has other things to do.
pytestmark = pytest.mark.timeout(1200)

ROOT = Path(__file__).resolve().parents[2]

OTHER_TORCH = """\
from typing import Optional
__version__ = '9.9.9+cu130'
cuda: Optional[str] = '13.0'
"""
CPU_TORCH = """\
from typing import Optional
__version__ = '9.9.9+cpu'
cuda: Optional[str] = None
"""


class Environment:
    """A virtual environment of its own, and what runs in it."""

    def __init__(self, folder: Path, *, sees: Path | None = None) -> None:
        venv.create(folder, with_pip=True, symlinks=True)
        self.folder = folder
        self.python = folder / "bin" / "python"
        minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = folder / "lib" / minor / "site-packages"
        if sees is not None:
            # In this way what that one itself sees is seen, too.
            line = f"import site; site.addsitedir({str(sees)!r})\n"
            (self.site / "other.pth").write_text(line)

    def add_torch(self, version_py: str) -> None:
        """Put a made-up torch in front of any other."""
        (self.site / "torch").mkdir()
        (self.site / "torch" / "version.py").write_text(version_py)
        init = "from torch import version\nfrom torch.version import __version__\n"
        (self.site / "torch" / "__init__.py").write_text(init)

    def run(self, *command: str | Path, shell: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a program of this environment in its folder: far from the source folder."""
        variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        variables["PATH"] = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        arguments = " ".join(map(str, command)) if shell else list(command)
        return subprocess.run(
            arguments,
            shell=shell,
            cwd=self.folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )

    def must_run(self, *command: str | Path, shell: bool = False) -> str:
        """Run a program that has to succeed; return what it printed."""
        done = self.run(*command, shell=shell)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def pip_install(self, *arguments: str | Path) -> None:
        """Run this environment's own pip."""
        self.must_run(self.python, "-m", "pip", "install", "--quiet", *arguments)

    def build_record(self) -> dict[str, object]:
        """What the build left for later errors."""
        text = (self.site / "gpumemtrace" / "_build_info.json").read_text()
        record: dict[str, object] = json.loads(text)["torch"]
        return record

    def refusal(self, command: str, *, imports: str = "sys") -> str:
        """Trace a script with a command that has to end with one line on stderr: that line."""
        (self.folder / "train.py").write_text(f"import {imports}\nprint('ran')\n")
        # Not the command: it may be that of an environment that this one sees, or of the PATH.
        done = self.run(self.python, "-m", "gpumemtrace", command, "train.py")
        assert done.returncode == 1, done
        assert "ran" not in done.stdout
        (line,) = done.stderr.splitlines()
        return line

    def install_error(self) -> list[str]:
        """Call gpumemtrace.install() in a program; return the error's class and its message."""
        program = (
            "import gpumemtrace\n"
            "try: gpumemtrace.install()\n"
            "except gpumemtrace.GpuMemTraceError as e: print(type(e).__name__, e, sep='\\n')\n"
        )
        return self.must_run(self.python, "-c", program).splitlines()


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("without_torch") / "env")
    environment.pip_install(ROOT)
    return environment


@pytest.fixture(scope="module")
def with_torch(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    torch = build_info._torch_record()
    if not torch["found"]:
        pytest.skip(f"no CUDA build of torch to build for: {torch['why']}")
    folder = tmp_path_factory.mktemp("with_torch")
    environment = Environment(folder / "env", sees=Path(str(torch["root"])).parent)
    environment.pip_install("--no-deps", ROOT)
    return environment


READ_AND_WRITE = """\
import numpy, gpumemtrace
columns = {"time_ns": [0, 10], "kind": [1, 2], "address": [512, 512], "size_bytes": [2048, 0],
           "stream": [0, 0], "device": [0, 0], "thread": [1, 1]}
trace = gpumemtrace.Trace.from_events({k: numpy.array(v) for k, v in columns.items()})
trace.save("small.gmt")
print(gpumemtrace.open("small.gmt").lifetimes().size_bytes)
"""


def test_without_torch_traces_can_be_read(without_torch: Environment) -> None:
    assert without_torch.must_run(without_torch.python, "-c", READ_AND_WRITE) == "[2048]\n"
    assert "2" in without_torch.must_run("gpumemtrace", "info", "small.gmt")


@pytest.mark.parametrize("command", ["run", "simulate"])
def test_without_torch_a_command_says_what_to_type(
    without_torch: Environment, command: str
) -> None:
    line = without_torch.refusal(command)
    assert "torch" in line
    assert "not installed" in line
    assert f"{without_torch.python} -m pip install torch && " in line


def test_without_torch_install_says_what_to_type(without_torch: Environment) -> None:
    name, message = without_torch.install_error()
    assert name == "InstallError"
    assert f"{without_torch.python} -m pip install torch && " in message


@pytest.mark.parametrize("command", ["run", "simulate"])
def test_cpu_build_of_torch(without_torch: Environment, tmp_path: Path, command: str) -> None:
    environment = Environment(tmp_path / "env", sees=without_torch.site)
    environment.add_torch(CPU_TORCH)
    environment.pip_install("--no-deps", ROOT)
    line = environment.refusal(command)
    assert "torch 9.9.9+cpu was a CPU build" in line
    assert "pip install --force-reinstall torch && " in line


def test_plain_pip_finds_the_torch_of_the_environment(with_torch: Environment) -> None:
    assert with_torch.build_record()["version"] == build_info.torch_version()
    assert list(with_torch.site.glob("gpumemtrace/_torch_hook*.so"))


def test_another_torch_is_refused_and_the_advice_helps(
    with_torch: Environment, tmp_path: Path
) -> None:
    built_for = build_info.torch_version()
    environment = Environment(tmp_path / "env", sees=with_torch.site)
    environment.add_torch(OTHER_TORCH)
    name, message = environment.install_error()
    assert name == "TorchMismatchError"
    assert built_for in message
    assert "9.9.9+cu130" in message
    line = environment.refusal("simulate", imports="torch")
    assert built_for in line
    assert "9.9.9+cu130" in line


def test_the_advice_of_the_error_helps(without_torch: Environment, tmp_path: Path) -> None:
    # Built without torch; now there is one: the command in the error builds for it.
    torch = build_info._torch_record()
    if not torch["found"]:
        pytest.skip(f"no CUDA build of torch to build for: {torch['why']}")
    environment = Environment(tmp_path / "env", sees=without_torch.site)
    with (environment.site / "other.pth").open("a") as pth:
        pth.write(f"{Path(str(torch['root'])).parent}\n")
    _, message = environment.install_error()
    command = message[message.index(str(environment.python)) :]
    environment.must_run(command, shell=True)
    assert environment.build_record()["version"] == torch["version"]


def test_sdist_has_all_that_a_wheel_needs(with_torch: Environment, tmp_path: Path) -> None:
    build = "from scikit_build_core.build import build_sdist; build_sdist({!r})"
    subprocess.run(
        [sys.executable, "-c", build.format(str(tmp_path))], cwd=ROOT, check=True, timeout=100
    )
    (sdist,) = tmp_path.glob("*.tar.gz")
    environment = Environment(tmp_path / "env", sees=with_torch.site)
    environment.must_run(environment.python, "-m", "pip", "wheel", "--no-deps", sdist)
    (wheel,) = environment.folder.glob("*.whl")
    environment.pip_install("--no-deps", wheel)
    assert environment.must_run("gpumemtrace", "--version").startswith("gpumemtrace ")
