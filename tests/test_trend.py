"""GIVEN any series, WHEN slopes and changes are looked for, THEN a slow search finds the same."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumemtrace.analysis.trend import cycle_amplitude, find_regimes, theil_sen


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=40))
def test_theil_sen_is_the_median_of_all_slopes(values):
    slopes = [(values[j] - values[i]) / (j - i) for i, j in combinations(range(len(values)), 2)]
    slope = theil_sen(range(len(values)), values)
    assert slope.value == pytest.approx(float(np.median(slopes)))
    assert slope.low <= slope.value <= slope.high


def test_the_interval_holds_the_truth_as_often_as_it_says():
    random = np.random.default_rng(3)
    x = np.arange(60)
    held = 0
    for _ in range(400):
        slope = theil_sen(x, 5 * x + random.normal(0, 100, 60))
        held += slope.low <= 5 <= slope.high
    assert 0.92 < held / 400 < 0.98


@given(st.lists(st.integers(0, 50), max_size=30))
def test_the_cycle_amplitude_is_the_most_that_rose_and_fell_again(values):
    slow = max(
        (
            min(values[b] - values[a], values[b] - values[c])
            for b in range(len(values))
            for a in range(b + 1)
            for c in range(b, len(values))
        ),
        default=0,
    )
    assert cycle_amplitude(values) == slow


@pytest.mark.parametrize("place", [1, 40, 150])
def test_a_change_is_found_where_it_is(place):
    y = np.concatenate([np.full(place, 1e6), 5e6 + 3000.0 * np.arange(200 - place)])
    assert find_regimes(y, least_steps=8)[-1] == pytest.approx(place, abs=0)


def test_noise_is_one_regime():
    random = np.random.default_rng(4)
    for _ in range(50):
        assert find_regimes(random.uniform(0, 1e9, 200), least_steps=8) == [0]
