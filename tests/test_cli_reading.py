"""GIVEN traces good and bad, WHEN the reading commands are run, THEN what they say is right."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import recorded
from synthetic import MIB, TraceBuilder

import gpumemtrace
from gpumemtrace.analysis.answers import find_answers
from gpumemtrace.analysis.lines import LineStream
from gpumemtrace.cli.main import main
from gpumemtrace.cli.summary_screen import print_summary
from gpumemtrace.schema import Kind
from gpumemtrace.trace_file import FileWriter, TraceFile


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "gpt2.gmt"
    recorded.load("gpt2")[0].save(path)
    return path


def saved(builder: TraceBuilder, path: Path) -> str:
    builder.trace().save(path)
    return str(path)


def oom_run() -> TraceBuilder:
    builder = TraceBuilder(
        run_record={
            "argv": ["train.py", "--lr", "0.1"],
            "torch": "2.14.1",
            "devices": [{"index": 0, "name": "NVIDIA T4", "memory_bytes": 16 << 30}],
            "simulated": {"gpu": "T4", "approximations": ["cuDNN attention: flash instead"]},
        }
    )
    builder.phase("forward").alloc(512, 100).stats(100, 512, 512, 2 * MIB).step(1)
    builder.add(Kind.DEVICE_USED, size_bytes=300 * MIB).phase("backward")
    return builder.add(Kind.ALLOC_FAILED, size_bytes=20 << 30, extra=1 << 30)


class TestCheck:
    def test_a_good_trace(self, gpt2, capsys):
        assert main(["check", str(gpt2)]) == 0
        assert capsys.readouterr().out == (
            f"{gpt2}: good: 63,687 allocs, 63,238 frees, 449 blocks in use at the end\n"
        )

    def test_no_allocation(self, tmp_path, capsys):
        assert main(["check", saved(TraceBuilder().phase("init"), tmp_path / "a.gmt")]) == 3
        assert "empty: no allocation of CUDA memory" in capsys.readouterr().out

    def test_an_empty_file(self, tmp_path):
        (tmp_path / "a.gmt").write_bytes(b"")
        assert main(["check", str(tmp_path / "a.gmt")]) == 3

    def test_cut_short(self, gpt2, tmp_path, capsys):
        path = tmp_path / "a.gmt"
        path.write_bytes(gpt2.read_bytes()[:-200])
        assert main(["check", str(path)]) == 4
        assert "truncated: " in capsys.readouterr().out

    def test_a_flipped_bit_in_the_events(self, gpt2, tmp_path, capsys):
        content = bytearray(gpt2.read_bytes())
        content[len(content) // 2] ^= 1
        path = tmp_path / "a.gmt"
        path.write_bytes(content)
        assert main(["check", "--json", str(path)]) == 5
        result = json.loads(capsys.readouterr().out)
        assert result["verdict"] == "corrupt"
        assert result["dropped_events"] > 0
        assert any(d["offset"] > 0 for d in result["diagnostics"])

    def test_no_trace(self, tmp_path, capsys):
        (tmp_path / "a.gmt").write_bytes(b"something else" * 100)
        assert main(["check", str(tmp_path / "a.gmt")]) == 5
        assert "not a gpumemtrace trace" in capsys.readouterr().out

    def test_a_missing_file_is_an_error(self, tmp_path, capsys):
        assert main(["check", str(tmp_path / "a.gmt")]) == 1
        assert capsys.readouterr().err == (
            f"gpumemtrace: {tmp_path / 'a.gmt'}: No such file or directory\n"
        )

    @pytest.mark.parametrize(
        ("builder", "kind", "event"),
        [
            (TraceBuilder().alloc(512, 9).alloc(512, 8), "double_alloc", 1),
            (TraceBuilder().alloc(512, 9).free(512).free(512), "unknown_free", 2),
            (TraceBuilder().alloc(512, 9).free(512, size_bytes=8), "size_mismatch", 1),
            (TraceBuilder().alloc(512, 9).step(2).step(1), "step_order", 1),
        ],
    )
    def test_events_that_contradict_each_other(self, builder, kind, event, tmp_path, capsys):
        """C29."""
        path = saved(builder, tmp_path / "a.gmt")
        assert main(["check", "--json", path]) == 5
        result = json.loads(capsys.readouterr().out)
        (diagnostic,) = result["diagnostics"]
        assert (diagnostic["kind"], diagnostic["event"]) == (kind, event)
        assert result["counts"] == {kind: 1}

    def test_a_long_list_is_cut_and_says_so(self, tmp_path, capsys):
        builder = TraceBuilder().alloc(512, 9)
        for _ in range(250):
            builder.free(1024)
        assert main(["check", saved(builder, tmp_path / "a.gmt")]) == 5
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 22
        assert "showing 20 of 250" in lines[-1]

    def test_blocks_from_before_the_trace_are_no_fault(self, tmp_path, capsys):
        builder = TraceBuilder().stats(700, 1024, 1024, 2 * MIB).free(512).alloc(512, 5)
        assert main(["check", saved(builder, tmp_path / "a.gmt")]) == 0
        assert "1 free of blocks from before the trace" in capsys.readouterr().out


class TestInfo:
    def test_what_the_file_is(self, gpt2, capsys):
        assert main(["info", str(gpt2)]) == 0
        out = capsys.readouterr().out
        assert "126,925 in 60 steps" in out
        assert "lost      0 events; when the ring is full the newest are dropped" in out
        assert re.search(r"\d+\.\d\d bytes/event, [\d.]+ MiB/hour", out)

    def test_what_ran(self, tmp_path, capsys):
        path = saved(oom_run(), tmp_path / "a.gmt")
        assert main(["info", path]) == 0
        out = capsys.readouterr().out
        assert "run       train.py --lr 0.1, torch 2.14.1, NVIDIA T4" in out
        assert "simulated T4: there was no GPU" in out
        assert main(["info", "--json", path]) == 0
        assert json.loads(capsys.readouterr().out)["run_record"]["torch"] == "2.14.1"

    def test_status_of_a_file_without_events(self, tmp_path, capsys):
        assert main(["info", saved(TraceBuilder().step(1), tmp_path / "a.gmt")]) == 3
        assert "this process made no CUDA event" in capsys.readouterr().out


class TestSummary:
    def test_json_is_a_contract(self, gpt2, capsys):
        assert main(["summary", "--json", str(gpt2)]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["trace"].keys() >= {
            "path",
            "format_version",
            "complete",
            "events",
            "dropped_events",
            "file_bytes",
            "duration_s",
            "steps",
            "simulated",
        }
        assert result["trace"]["events"] == 126_925
        assert result["trace"]["steps"] == 60
        assert result["trace"]["simulated"] is None
        (device,) = result["devices"]
        truth = recorded.load("gpt2")[1]
        assert device["peak_bytes"] == {
            name: truth["peak"][f"{name}_bytes.all.peak"]
            for name in ("requested", "allocated", "active", "reserved")
        } | {"device_used": None}
        assert [phase["name"] for phase in device["phases"]] == list(recorded.PHASES)
        for phase in device["phases"]:
            assert phase.keys() >= {
                "name",
                "count",
                "time_s",
                "peak_allocated_bytes",
                "peak_reserved_bytes",
                "net_allocated_bytes",
            }
        assert result["peak"].keys() >= {"time_s", "step", "phase"}
        assert (result["peak"]["step"], result["peak"]["phase"]) == (1, "backward")

    def test_what_is_not_known_is_null(self, tmp_path, capsys):
        path = saved(TraceBuilder().alloc(512, 100), tmp_path / "a.gmt")
        assert main(["summary", "--json", path]) == 0
        (device,) = json.loads(capsys.readouterr().out)["devices"]
        assert device["peak_bytes"] == {
            "requested": 100,
            "allocated": 512,
            "active": None,
            "reserved": None,
            "device_used": None,
        }

    def test_simulated(self, tmp_path, capsys):
        path = saved(oom_run(), tmp_path / "a.gmt")
        assert main(["summary", "--json", path]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["trace"]["simulated"] == {
            "gpu": "T4",
            "approximations": ["cuDNN attention: flash instead"],
        }
        (oom,) = result["devices"][0]["ooms"]
        assert (oom["requested_bytes"], oom["step"], oom["phase"]) == (20 << 30, 1, "backward")

    def test_one_screen(self, tmp_path, capsys):
        path = saved(oom_run(), tmp_path / "a.gmt")
        assert main(["summary", path]) == 0
        out = capsys.readouterr().out
        assert "Simulated T4: there was no GPU." in out
        assert "approximated: cuDNN attention: flash instead" in out
        assert "device used  300.0 MiB  step" not in out
        lines = out.splitlines()
        assert lines[1].startswith(
            "Out of memory on cuda:0: 20.000 GiB could not be had in backward, step 1, at "
        )
        assert f"Next: gpumemtrace oom {path}" in lines
        assert f"      gpumemtrace plot {path} -o {path.removesuffix('.gmt')}.png" in out
        assert "\x1b" not in out
        assert main(["summary", "-q", path]) == 0
        assert "Next:" not in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("lost", "words"), [(1, "1 event was lost: "), (10_000, "10,000 events were lost: ")]
    )
    def test_losses_are_told_first(self, tmp_path, capsys, lost, words):
        builder = TraceBuilder(run_record={"script": "train"}).alloc(512, 100)
        builder.add(Kind.GAP, address=lost, device=-1)
        path = saved(builder.alloc(1024, 5), tmp_path / "a.gmt")
        assert main(["summary", path]) == 0
        assert capsys.readouterr().out.splitlines()[1].startswith(words)

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            ({"type": "torch.OutOfMemoryError", "message": "CUDA …"}, "it."),
            ({"type": "ValueError", "message": "a\nb"}, "ValueError: a"),
            ({"type": "E", "message": "x" * 500}, "E: " + "x" * 117 + "…"),
        ],
    )
    def test_the_error_at_the_end_is_told_first(self, capsys, error, words):
        builder = TraceBuilder(footer={"error": error}, run_record={"script": "train"})
        builder.alloc(1 << 40, 100).add(Kind.ALLOC_FAILED, size_bytes=512).step(1)
        print_summary(find_answers(builder.trace()), hints=True)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].endswith(": 1 step, 2 us, 1 event")
        assert lines[1].startswith("Out of memory on cuda:0: 512 B could not be had in step 0")
        assert lines[2] == f"The program ended with {words}"
        assert lines[3] == "train"

    def test_a_trace_without_events_says_so(self, tmp_path, capsys):
        """C92, C108: where a file was made all the same."""
        assert main(["summary", saved(TraceBuilder().step(1), tmp_path / "a.gmt")]) == 0
        assert "no events: this process allocated no CUDA memory" in capsys.readouterr().out


def test_a_damaged_file_is_read_as_far_as_it_goes(gpt2, tmp_path):
    content = gpt2.read_bytes()
    path = tmp_path / "a.gmt"
    for length in range(0, len(content), 40_000):
        path.write_bytes(content[:length])
        status = main(["check", "-q", str(path)])
        assert status in (3, 4), length
        if length > 100:
            assert main(["summary", "-q", str(path)]) == 0
    for place in range(0, len(content), 50_001):
        damaged = bytearray(content)
        damaged[place : place + 8] = b"\xff" * 8
        path.write_bytes(damaged)
        assert main(["check", "-q", str(path)]) in (4, 5), place


def test_lines_after_a_damaged_chunk_are_marked(gpt2, tmp_path):
    path = tmp_path / "a.gmt"
    whole = TraceFile(gpt2)
    with FileWriter(path, events_per_keyframe=1) as writer:
        writer.write_names(whole.names)
        writer.append(whole.read())
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 1
    path.write_bytes(content)
    trace = gpumemtrace.open(path)
    assert trace.dropped_events > 0
    gap = trace.records(Kind.GAP)
    uncertain = [lines.uncertain for batch, lines in LineStream(trace) if len(batch) > 1]
    assert any(part.any() for part in uncertain)
    assert gap["event"][0] < len(trace)


@pytest.mark.parametrize(
    "arguments",
    [
        *("peak", "growth", "phases", "times", "fragmentation", "oom", "compare a.gmt"),
        *("plot -fo a.png", "report -fo a.html", "export --to csv -fo a.csv", "budget rules.toml"),
    ],
)
def test_every_command_says_what_is_missing(gpt2, tmp_path, capsys, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    Path("rules.toml").write_text('[[limit]]\nmax = "24 GiB"\n')
    content = bytearray(gpt2.read_bytes())
    Path("a.gmt").write_bytes(content)
    command, *options = arguments.split()
    traces = ["a.gmt"] if command != "budget" else []
    first = ["a.gmt"] if command == "budget" else []
    main([command, *first, *options, *traces])
    assert capsys.readouterr().err == ""
    content[len(content) * 3 // 4] ^= 1  # in the second of two chunks: the first stays
    Path("a.gmt").write_bytes(content)
    main([command, *first, *options, *traces])
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r"a\.gmt: .*checksum.*events were lost\. Figures lack what is missing", line)
    Path("a.gmt").write_bytes(gpt2.read_bytes()[:-30])
    main([command, *first, *options, *traces])
    assert "the file ends inside this chunk" in capsys.readouterr().err


def test_what_force_overwrites_is_there_until_all_is_written(gpt2, tmp_path, monkeypatch, capsys):
    output = tmp_path / "a.csv"
    output.write_text("precious")
    bad = tmp_path / "bad.gmt"
    bad.write_text("no trace")
    assert main(["export", str(bad), "--to", "csv", "-f", "-o", str(output)]) == 1
    assert output.read_text() == "precious"

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gpumemtrace.export.csv._values", full)
    capsys.readouterr()
    assert main(["export", str(gpt2), "--to", "csv", "-f", "-o", str(output)]) == 1
    assert capsys.readouterr().err == (
        f"gpumemtrace: can't write {output}: No space left on device\n"
    )
    assert output.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "bad.gmt"]
