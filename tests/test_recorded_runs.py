"""GIVEN real recordings, WHEN they are read, THEN every counter of PyTorch is met, 0 bytes off."""

from __future__ import annotations

import numpy as np
import pytest
import recorded

from gpumemtrace.analysis.lines import ALLOCATOR_LINES
from gpumemtrace.analysis.peaks import find_peaks


@pytest.fixture(scope="module", params=["gpt2", "resnet"])
def run(request):
    return recorded.load(request.param)


def test_every_line_at_the_end_of_every_step(run):
    trace, truth = run
    (device,) = find_peaks(trace)
    expected = np.array(truth["stats_per_step"])
    assert device.steps.number.tolist()[:60] == list(range(60))
    for i, name in enumerate(ALLOCATOR_LINES):
        np.testing.assert_array_equal(device.steps.end[name][:60], expected[:, i], err_msg=name)


def test_the_peak_of_every_line(run):
    trace, truth = run
    (device,) = find_peaks(trace)
    for name in ALLOCATOR_LINES:
        assert device.lines[name].size_bytes == truth["peak"][f"{name}_bytes.all.peak"], name
    assert device.lines["device_used"] is None


def test_steps_are_complete(run):
    trace, _ = run
    assert len(trace.steps) == 60
    assert trace.steps.number.tolist() == list(range(60))
