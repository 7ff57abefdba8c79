"""GIVEN rules of the user's, WHEN a trace is read, THEN they decide what allocations are for."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import MIB, PHASE_NAMES, TraceBuilder, event_columns

import gpumemtrace
from gpumemtrace.analysis.categories import RULES, find_categories
from gpumemtrace.analysis.lifetimes import find_lifetimes
from gpumemtrace.analysis.own_categories import match_rules
from gpumemtrace.category_rules import CATEGORY_NAMES, CategoryRule, load_category_rules
from gpumemtrace.cli.main import main
from gpumemtrace.errors import RulesError
from gpumemtrace.schema import Category, Kind
from gpumemtrace.trace import Trace

RULE = st.builds(
    CategoryRule,
    name=st.sampled_from(CATEGORY_NAMES),
    phase=st.none() | st.sampled_from([*PHASE_NAMES, "absent"]),
    min_bytes=st.none() | st.sampled_from([0, 512, MIB]),
    max_bytes=st.none() | st.sampled_from([511, 3000, 40 * MIB]),
    min_age_steps=st.none() | st.integers(0, 2),
    max_age_steps=st.none() | st.integers(0, 2),
)


@given(columns=event_columns(), rules=st.lists(RULE, min_size=1, max_size=4))
def test_the_first_rule_that_is_true_decides(columns, rules):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    lives = find_lifetimes(trace)
    is_matched, category = match_rules(trace, rules)
    for i in range(len(lives)):
        phase = int(lives.birth_phase[i])
        dead = lives.death_index[i] >= 0
        age = int(lives.death_step[i] - lives.birth_step[i]) if dead else 10**9
        size = int(lives.size_bytes[i])
        for rule in rules:
            if rule.phase is not None and (phase < 0 or PHASE_NAMES[phase] != rule.phase):
                continue
            if not (rule.min_bytes or 0) <= size <= (rule.max_bytes or 1 << 62):
                continue
            if rule.min_age_steps is not None and age < rule.min_age_steps:
                continue
            if rule.max_age_steps is not None and age > rule.max_age_steps:
                continue
            assert is_matched[i]
            assert CATEGORY_NAMES[category[i]] == rule.name
            break
        else:
            assert not is_matched[i]


def tagged() -> TraceBuilder:
    builder = TraceBuilder(strings={7: "cache.key", 8: "cache.value", 9: "weight"})
    builder.phase("forward")
    for i, name in enumerate((7, 8, 9)):
        builder.alloc((i + 1) << 40, (i + 1) * MIB)
        builder.add(
            Kind.TAG,
            address=(i + 1) << 40,
            size_bytes=MIB,
            stream=int(Category.PARAMETER),
            extra=name,
        )
    builder.alloc(5 << 40, 8 * MIB).phase("").step(1)
    return builder


def test_tags_are_matched_by_pattern_and_the_rest_stays():
    trace = tagged().trace()
    trace.category_rules = (CategoryRule(name="buffer", tag="cache.*"),)
    found = find_categories(trace)
    assert fnmatchcase("cache.key", "cache.*")
    assert found.category[:3].tolist() == ["buffer", "buffer", "parameter"]
    assert RULES[found.rule_id[0]].name == "yours"
    assert RULES[found.rule_id[2]].name == "tag"
    part = trace.slice(steps=(0, 1))
    assert np.array_equal(find_categories(part).category_id, found.category_id)


def test_every_view_obeys(tmp_path, capsys):
    trace, rules = tmp_path / "run.gmt", tmp_path / "rules.toml"
    tagged().trace().save(trace)
    rules.write_text('[[category]]\nname = "input"\nmin = "8 MiB"\nphase = "forward"\n')
    options = ["--categories", str(rules), "--json", str(trace)]
    assert main(["summary", *options]) == 0
    assert json.loads(capsys.readouterr().out)["categories_at_peak"]["input"] == 8 * MIB
    assert main(["peak", *options]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]["category"]
    assert {g["name"]: g["bytes"] for g in groups}["input"] == 8 * MIB
    opened = gpumemtrace.open(trace, category_rules=load_category_rules(rules))
    assert opened.lifetimes().category.tolist()[3] == "input"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no rule: write ..category"),
        ('[[category]]\nname = "weights"\nphase = "x"', "name is 'weights': it can be unknown"),
        ('[[category]]\nname = "input"', "it says of nothing that it is 'input'"),
        ('[[category]]\nphase = "data"', "'name' is missing"),
        ('[[category]]\nname = "input"\nmin = "x"', "'x' is not a size"),
        ('[[category]]\nname = "input"\nages = 3', "'ages' is not known"),
        ("[[kind]]", "'kind' is no kind of rule: write ..category"),
    ],
)
def test_rules_that_mean_nothing_are_named(tmp_path, text, message):
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(RulesError, match=message):
        load_category_rules(path)
