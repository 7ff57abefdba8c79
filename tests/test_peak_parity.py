"""Peaks that a script measures phase by phase, with resets in between, are those of its trace."""

from __future__ import annotations

import numpy as np
import pytest
from measured_phases import compare_measured_phases
from programs import PROGRAMS
from simgpu import result_of, run_simulated

import gpumemtrace
from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.analysis.phases import find_phases

pytestmark = pytest.mark.simgpu


def record(folder, grad: str):
    path = str(folder / f"{grad}.gmt")
    done = run_simulated(PROGRAMS / "measured_peaks.py", args=[path, grad], devices=2)
    return gpumemtrace.open(path), result_of(done)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """GIVEN trainings with evaluation nested inside, on two devices, and what they measured."""
    folder = tmp_path_factory.mktemp("parity")
    return {grad: record(folder, grad) for grad in ("no_grad", "grad")}


@pytest.mark.parametrize("grad", ["no_grad", "grad"])
def test_every_phase_of_every_step(runs, grad):
    trace, measured = runs[grad]
    assert compare_measured_phases(trace, measured) == (2 * (1 + 4 * 5 + 2), [])
    wrong = [dict(phases) for phases in measured]
    wrong[1]["forward"] = [peak + 1 for peak in wrong[1]["forward"]]
    _, off = compare_measured_phases(trace, wrong)
    assert off == [f"cuda:{device} step 1 forward: -1 B" for device in (0, 1)]


@pytest.mark.parametrize("grad", ["no_grad", "grad"])
def test_every_step_and_what_owned_it(runs, grad):
    trace, measured = runs[grad]
    for device in find_peaks(trace):
        expected = [max(peaks[device.device] for peaks in phases.values()) for phases in measured]
        assert device.steps.peak["allocated"][:4].tolist() == expected
        steps = trace.peak(device=device.device).steps
        assert steps.size_bytes[:4].tolist() == expected
        for parts in (steps.category_bytes, steps.phase_bytes):
            np.testing.assert_array_equal(parts.sum(axis=1), steps.size_bytes)
        names = [trace.phase_name(phase) for phase in steps.phase[:4].tolist()]
        for name, phases, peak in zip(names, measured, expected, strict=True):
            assert phases[name][device.device] == peak


@pytest.mark.parametrize("grad", ["no_grad", "grad"])
def test_evaluation_nested_in_training_on_each_device(runs, grad):
    trace, measured = runs[grad]
    for device in find_phases(trace):
        own = {use.path: use.self_peak["allocated"] for use in device.paths}
        highest = {
            name: max(phases.get(name, [0, 0])[device.device] for phases in measured)
            for name in ("data", "forward", "backward", "optimizer", "zero_grad", "eval")
        }
        assert {
            path[1]: own[path] for path in own if path[:1] == ("train",) and path[1:]
        } == highest
        inclusive = {use.path: use.peak["allocated"] for use in device.paths}
        assert inclusive["train",] == max(highest.values())


def test_evaluation_with_gradients_rises_above_training_and_stays(runs):
    for grad, keeps in (("grad", True), ("no_grad", False)):
        trace, _ = runs[grad]
        (device, _) = find_phases(trace)
        uses = {use.name: use for use in device.phases}
        training = max(uses[name].self_peak["allocated"] for name in ("forward", "backward"))
        if keeps:
            # Both evaluations keep their graphs: 4 layers' activations of 1500 x 400 floats.
            assert uses["eval"].self_peak["allocated"] > training
            assert uses["eval"].net_allocated_bytes > 2 * 4 * 1500 * 400 * 4
            born = {
                group.name: group.size_bytes for group in trace.peak(device=0).group_by("phase")
            }
            assert born["eval"] > 2 * 4 * 1500 * 400 * 4
        else:
            assert uses["eval"].net_allocated_bytes < 3 * 1500 * 400 * 4
