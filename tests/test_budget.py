"""GIVEN rules and traces, WHEN they are checked, THEN what is over is said; nothing slips by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.budget import check_budget
from gpumemtrace.analysis.budget_rules import RulesError, load_rules, parse_rules
from gpumemtrace.cli.main import main
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace


def run(*, rank: int = 0, leak: int = 0, steps: int = 40) -> Trace:
    """Forward peaks at 6 MiB, backward at 10 MiB in even steps and 8 MiB in odd ones."""
    builder = TraceBuilder(run_record={"rank": rank})
    builder.alloc(1 << 40, 4 * MIB)
    for step in range(steps):
        builder.phase("forward").alloc(2 << 40, 2 * MIB)
        builder.phase("backward").alloc(3 << 40, (4 if step % 2 == 0 else 2) * MIB)
        builder.free(3 << 40).free(2 << 40)
        if leak:
            builder.alloc((4 << 40) + step * MIB, leak)
        builder.phase("").step(step + 1)
    return builder.trace()


def measured(trace: Trace, **rule: object) -> float:
    (finding,) = check_budget([trace], parse_rules({"limit": [rule]})).findings
    return finding.measured


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, 10 * MIB),
        ({"line": "requested"}, 10 * MIB),
        ({"phase": "forward"}, 6 * MIB),
        ({"phase": "backward"}, 10 * MIB),
        ({"phase": "backward", "steps": "1:2"}, 8 * MIB),
        ({"steps": "3:5"}, 10 * MIB),
        ({"category": "temporary"}, 4 * MIB),
        ({"category": "temporary", "steps": "1:2"}, 2 * MIB),
    ],
)
def test_each_limit_measures_what_it_names(rule, expected):
    trace = run()
    assert measured(trace, max="1 GiB", **rule) == expected
    for limit, is_within in ((expected, True), (expected - 1, False)):
        assert check_budget([trace], parse_rules({"limit": [rule | {"max": limit}]})).is_within == (
            is_within
        )


@pytest.mark.parametrize(
    ("steps", "note"),
    [
        ("10:1000", "of steps 10 to 999 the run has those before 40"),
        ("39:41", "of steps 39 to 40 the run has those before 40"),
        ("10:40", None),
    ],
)
def test_steps_that_the_run_never_got_to_are_named(steps, note):
    rules = parse_rules({"limit": [{"max": "1 GiB", "steps": steps}]})
    (found,) = check_budget([run()], rules).findings
    assert (found.verdict, found.note) == ("ok", note)


@pytest.mark.parametrize("steps", [0, 8])
def test_growth_in_too_few_steps_is_no_pass(steps):
    rules = parse_rules({"growth": [{"max_per_step": "1 KiB"}]})
    budget = check_budget([run(steps=steps)], rules)
    assert budget.verdict == "unknown" and not budget.is_within
    assert budget.findings[0].note.startswith(f"{steps} steps are too few to tell")


def test_a_rank_that_stopped_early_is_not_hidden_by_the_others():
    rules = parse_rules({"growth": [{"max_per_step": "1 KiB"}]})
    budget = check_budget([run(rank=0), run(rank=1, steps=3)], rules)
    assert [finding.verdict for finding in budget.findings] == ["ok", "unknown"]
    assert budget.verdict == "unknown"


def test_a_phase_that_one_rank_has_is_told_by_that_one():
    only_here = TraceBuilder(run_record={"rank": 1}).phase("eval").alloc(1 << 40, MIB).phase("")
    rules = parse_rules({"limit": [{"max": "2 MiB", "phase": "eval"}]})
    budget = check_budget([run(rank=0), only_here.trace()], rules)
    assert budget.verdict == "within" and len(budget.findings) == 1


def test_growth_is_limited_per_step():
    rules = parse_rules({"growth": [{"max_per_step": "512 B"}]})
    assert check_budget([run()], rules).is_within
    leaking = check_budget([run(leak=1024)], rules)
    assert not leaking.is_within
    assert leaking.findings[0].measured == pytest.approx(1024)
    assert check_budget(
        [run(leak=1024)], parse_rules({"growth": [{"max_per_step": 1024}]})
    ).is_within


def test_a_rule_for_a_rank_is_about_that_trace_alone():
    rules = parse_rules({"limit": [{"max": "1 GiB", "rank": 3}]})
    traces = [run(rank=rank) for rank in (0, 3)]
    assert len(check_budget(traces, rules).findings) == 1
    (finding,) = check_budget(traces[:1], rules).findings
    assert finding.verdict == "unknown" and finding.note == "no trace of rank 3: there are 0"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"phase": "rollout"}, "no phase 'rollout': there are backward, forward"),
        ({"device": 7}, "no device 7: there are 0"),
        ({"line": "device_used"}, "device_used bytes are not known in this trace"),
        ({"steps": "90:95"}, "no step in 90:95"),
    ],
)
def test_a_rule_about_nothing_is_no_pass_and_hides_no_other(rule, message):
    tables = {"limit": [{"max": "1 GiB"} | rule, {"max": "1 GiB", "phase": "forward"}]}
    budget = check_budget([run()], parse_rules(tables))
    assert budget.verdict == "unknown"
    assert [finding.verdict for finding in budget.findings] == ["unknown", "ok"]
    assert message in budget.findings[0].note
    tables["limit"][1]["max"] = 1
    assert check_budget([run()], parse_rules(tables)).verdict == "over"


def test_a_trace_without_events_is_no_pass():
    budget = check_budget([TraceBuilder().phase("").trace()], parse_rules({"limit": [{"max": 1}]}))
    assert budget.findings[0].note == "nothing was allocated on any device"


ANY_LIMIT = {"limit": [{"max": "1 GiB"}]}


class TestOutOfMemory:
    """GIVEN a run in which requests failed, THEN it is not within, unless a rule allows them."""

    def failing(self, *, device: int = 0, error: str | None = None) -> Trace:
        builder = TraceBuilder(footer={} if error is None else {"error": {"type": error}})
        builder.phase("forward").alloc(1 << 40, MIB).alloc(1 << 40, MIB, device=1)
        builder.add(Kind.ALLOC_FAILED, size_bytes=3 * MIB, device=device)
        return builder.phase("").step(1).trace()

    def test_a_failed_request_is_over_any_limit(self):
        budget = check_budget([self.failing()], parse_rules(ANY_LIMIT))
        assert budget.verdict == "over"
        found = budget.findings[0]
        assert (found.rule, found.measured, found.limit) == ("out of memory", 1, 0)
        assert (found.device, found.step, found.phase) == (0, 0, "forward")
        assert found.note == "3.0 MiB could not be had"
        assert [finding.verdict for finding in budget.findings[1:]] == ["ok", "ok"]

    @pytest.mark.parametrize(
        ("rule", "verdict"),
        [
            ({"max": 1}, "within"),
            ({"max": 0}, "over"),
            ({"max": 1, "device": 0}, "within"),
            ({"max": 1, "device": 1}, "over"),
            ({"max": 1, "device": 2}, "over"),
            ({"max": 1, "rank": 3}, "over"),
        ],
    )
    def test_a_rule_allows_some_where_it_says_so(self, rule, verdict):
        rules = parse_rules(ANY_LIMIT | {"failed_requests": [rule]})
        assert check_budget([self.failing()], rules).verdict == verdict

    @pytest.mark.parametrize(
        ("error", "verdict"),
        [
            ("torch.OutOfMemoryError", "over"),
            ("ValueError", "within"),
        ],
    )
    def test_no_rule_allows_to_die_of_it(self, error, verdict):
        rules = parse_rules(ANY_LIMIT | {"failed_requests": [{"max": 5}]})
        budget = check_budget([self.failing(error=error)], rules)
        assert budget.verdict == verdict
        found = next(f for f in budget.findings if f.rule == "failed requests")
        assert ("the run ended with" in found.note) == (verdict == "over")
        assert [doubt.what for doubt in budget.doubts] == (
            [] if verdict == "over" else ["the program ended with an error: ValueError"]
        )

    def test_a_device_that_did_not_fail_is_not_what_the_run_died_of(self):
        rules = parse_rules({"failed_requests": [{"max": 5, "device": 1}]})
        budget = check_budget([self.failing(error="torch.OutOfMemoryError")], rules)
        assert [(f.device, f.verdict) for f in budget.findings] == [(0, "over"), (1, "ok")]

    def test_memory_that_a_library_could_not_have_counts(self):
        message = "NCCL error: Cuda failure 2 'out of memory'"
        builder = TraceBuilder(footer={"error": {"type": "DistBackendError", "message": message}})
        trace = builder.alloc(1 << 40, MIB).trace()
        budget = check_budget([trace], parse_rules(ANY_LIMIT))
        assert budget.verdict == "over"
        assert budget.findings[0].note == "the run ended with DistBackendError"


class TestDoubt:
    """GIVEN a trace that lacks something, THEN what is there is judged, and the lack is said."""

    def test_lost_events(self):
        trace = TraceBuilder().alloc(1 << 40, MIB).add(Kind.GAP, address=7).trace()
        budget = check_budget([trace], parse_rules({"limit": [{"max": MIB}]}))
        assert budget.verdict == "within"
        assert [doubt.what for doubt in budget.doubts] == ["7 events were lost"]
        assert check_budget([trace], parse_rules({"limit": [{"max": 1}]})).verdict == "over"

    def test_a_killed_run(self):
        builder = TraceBuilder(complete=False).alloc(1 << 40, MIB)
        budget = check_budget([builder.trace()], parse_rules({"limit": [{"max": MIB}]}))
        assert budget.verdict == "within"
        assert "not closed" in budget.doubts[0].what


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no rule"),
        ("max = 3", "'max' is no kind of rule"),
        ("limit = 3", "'limit' must be a list of tables"),
        ("[[limit]]", "'max' is missing, such as max ="),
        ('[[limit]]\nmax = "many"', "limit.. 1: 'many' is not a size"),
        ("[[limit]]\nmax = true", "max must be a size"),
        ('[[limit]]\nmax = "1G"\nphases = "x"', "'phases' is not known: known are name, max"),
        ('[[limit]]\nmax = "1G"\nline = "used"', "line is 'used': it can be requested, allocated"),
        ('[[limit]]\nmax = "1G"\nsteps = "5:5"', "steps is '5:5': write A:B"),
        ('[[limit]]\nmax = "1G"\ndevice = -1', "device must be a whole number"),
        ("[[growth]]", "'max_per_step' is missing"),
        ("[[failed_requests]]", "'max' is missing, such as max = 3"),
        ("[[failed_requests]]\nmax = '1 GiB'", "max must be a whole number"),
        ("[[limit", "not a TOML file"),
    ],
)
def test_rules_that_mean_nothing_are_named(tmp_path, text, message):
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(RulesError, match=message) as error:
        load_rules(path)
    assert str(path) in str(error.value)


class TestCommand:
    @pytest.fixture
    def trace(self, tmp_path) -> Path:
        path = tmp_path / "run.gmt"
        run().save(path)
        return path

    def check(self, trace: Path, rules: str, *options: str) -> int:
        path = trace.with_name("rules.toml")
        path.write_text(rules)
        return main(["budget", str(trace), str(path), *options])

    def test_within(self, trace, capsys):
        assert self.check(trace, '[[limit]]\nmax = "10 MiB"\nname = "all of it"') == 0
        out = capsys.readouterr().out
        assert "ok" in out and "all of it" in out and "Within budget." in out

    def test_over(self, trace, capsys):
        rules = '[[limit]]\nmax = "9 MiB"\n[[limit]]\nphase = "forward"\nmax = "7 MiB"'
        assert self.check(trace, rules, "--json") == 1
        found = json.loads(capsys.readouterr().out)
        assert [f["over"] for f in found["findings"]] == [True, False]
        assert found["findings"][0]["phase"] == "backward"

    def test_what_cant_be_told_is_shown_beside_the_rest(self, trace, capsys):
        rules = '[[limit]]\nmax = "9 MiB"\n[[limit]]\nphase = "nope"\nmax = "7 MiB"'
        assert self.check(trace, rules) == 1
        out = capsys.readouterr().out
        assert "no phase 'nope'" in out and "1 of 2 over the limit, 1 of 2 can't be told." in out
        assert self.check(trace, rules.replace("9 MiB", "10 MiB")) == 2
        assert "\n1 of 2 can't be told." in capsys.readouterr().out

    def test_a_truncated_trace_is_judged_with_a_warning(self, trace, capsys):
        trace.write_bytes(trace.read_bytes()[:-20])
        assert self.check(trace, '[[limit]]\nmax = "10 MiB"\nname = "[all] of it"') == 0
        captured = capsys.readouterr()
        assert "Within budget, as far as the trace tells." in captured.out
        assert "In doubt: " in captured.out and "[all] of it" in captured.out

    def test_unusable(self, trace, capsys, tmp_path):
        assert self.check(trace, "[[limit]]") == 2
        assert main(["budget", str(tmp_path / "no.gmt"), str(tmp_path / "rules.toml")]) == 2
        assert main(["budget", str(trace), str(tmp_path / "none.toml")]) == 2
        errors = capsys.readouterr().err.splitlines()
        assert len(errors) == 3 and "No such file" in errors[2]
