"""The run record: what it says, and what it must not say. No GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import gpumemtrace
from gpumemtrace.capture import rank, run_record
from gpumemtrace.capture.run_record import at_start, git_commit, masked_arguments


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        (
            ["train.py", "--lr", "0.1", "--name=run-17"],
            ["train.py", "--lr", "0.1", "--name=run-17"],
        ),
        (["--token", "abc", "x"], ["--token", "***", "x"]),
        (["--hub-token=abc"], ["--hub-token=***"]),
        (["--wandb.api_key=abc", "--API-KEY", "s"], ["--wandb.api_key=***", "--API-KEY", "***"]),
        (["--use-auth", "--epochs", "3"], ["--use-auth", "--epochs", "3"]),
        (["-password=x", "--secret"], ["-password=***", "--secret"]),
        (["hf_abcdefghijkl", "key=sk-abcdefghijkl"], ["***", "key=***"]),
        (["https://me:pw@host/x"], ["https://me:***@host/x"]),
        (["Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4MTIz"], ["***"]),
        # Long, but a hash in lower case, a path, a name: people want to see these.
        (["da39a3ee5e6b4b0d3255bfef95601890afd80709"],) * 2,
        (["/data/Models/Llama-3.1-8B-Instruct-abcdefghijkl"],) * 2,
        (["--max_tokens", "512", "--tokenizer=gpt2"], ["--max_tokens", "512", "--tokenizer=gpt2"]),
    ],
)
def test_arguments_that_look_like_secrets_are_masked(given: list[str], recorded: list[str]) -> None:
    assert masked_arguments(given) == recorded


def test_only_named_variables_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    record = at_start(phases="auto")
    assert "secret" not in json.dumps(record)
    assert record["environment"]["CUDA_VISIBLE_DEVICES"] == "1,2"
    assert record["allocator"]["settings"] == "expandable_segments:True"
    assert record["gpumemtrace"] == gpumemtrace.__version__
    assert record["simulated"] is None


def test_the_commit_is_read_without_git(tmp_path: Path) -> None:
    def git(*arguments: str, cwd: Path = tmp_path) -> str:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        command = ["git", *identity, *arguments]
        return subprocess.run(
            command, cwd=cwd, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert git_commit(tmp_path) is None
    git("init", "-q", "-b", "main")
    assert git_commit(tmp_path) is None  # no commit yet
    git("commit", "-q", "--allow-empty", "-m", "one")
    commit = git("rev-parse", "HEAD")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert git_commit(inner) == commit
    git("pack-refs", "--all")
    assert git_commit(tmp_path) == commit
    git("worktree", "add", "-q", str(tmp_path / "other"), "-b", "other")
    assert git_commit(tmp_path / "other") == commit
    git("checkout", "-q", "--detach")
    assert git_commit(tmp_path) == commit
    (tmp_path / ".git" / "HEAD").unlink()
    assert git_commit(tmp_path) is None


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 0, 1)),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, (3, 1, 4)),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "2", "SLURM_NTASKS": "8"}, (5, 2, 8)),
        ({"RANK": "x", "OMPI_COMM_WORLD_RANK": "2"}, (2, 2, 1)),
    ],
)
def test_ranks(
    variables: dict[str, str], expected: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*rank._RANK, *rank._LOCAL_RANK, *rank._WORLD_SIZE):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (rank.rank(), rank.local_rank(), rank.world_size()) == expected


def test_every_named_variable_is_named_once_and_in_order() -> None:
    assert list(run_record.ENVIRONMENT) == sorted(set(run_record.ENVIRONMENT))


def test_the_commit_is_that_of_the_scripts_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "project" / "train.py"
    script.parent.mkdir()
    script.write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), "--lr", "1"])
    assert run_record.script_folder() == script.parent
    monkeypatch.setattr(sys, "argv", [sys.executable])  # of the environment: no script
    assert run_record.script_folder() == tmp_path
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert run_record.script_folder() == tmp_path
