"""GIVEN rules and traces, WHEN they are checked, THEN what is over is said; nothing slips by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import MIB, TraceBuilder

from gpumemtrace.analysis.budget import check_budget
from gpumemtrace.analysis.budget_rules import RulesError, load_rules, parse_rules
from gpumemtrace.cli.main import main
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


@pytest.mark.parametrize("steps", [0, 8])
def test_growth_in_too_few_steps_is_no_pass(steps):
    rules = parse_rules({"growth": [{"max_per_step": "1 KiB"}]})
    with pytest.raises(RulesError, match=f"{steps} steps are too few to tell"):
        check_budget([run(steps=steps)], rules)


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
    with pytest.raises(RulesError, match="no trace of rank 3: there are 0"):
        check_budget(traces[:1], rules)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"phase": "rollout"}, "no phase 'rollout': there are backward, forward"),
        ({"device": 7}, "no device 7: there are 0"),
        ({"line": "device_used"}, "device_used bytes are not known in this trace"),
        ({"steps": "90:95"}, "no step in 90:95"),
    ],
)
def test_a_rule_about_nothing_is_no_pass(rule, message):
    with pytest.raises(RulesError, match=message):
        check_budget([run()], parse_rules({"limit": [{"max": "1 GiB"} | rule]}))


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

    def test_unusable(self, trace, capsys, tmp_path):
        assert self.check(trace, "[[limit]]") == 2
        assert main(["budget", str(tmp_path / "no.gmt"), str(tmp_path / "rules.toml")]) == 2
        assert main(["budget", str(trace), str(tmp_path / "none.toml")]) == 2
        errors = capsys.readouterr().err.splitlines()
        assert len(errors) == 3 and "No such file" in errors[2]
