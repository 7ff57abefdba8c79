"""GIVEN steps and phases, THEN the peak of each phase in each step equals a slow reference."""

from __future__ import annotations

import numpy as np
import recorded
from hypothesis import given
from hypothesis import strategies as st
from synthetic import MIB, PHASE_NAMES, TraceBuilder, event_columns

from gpumemtrace.analysis.lines import LineStream
from gpumemtrace.analysis.peaks import find_peaks
from gpumemtrace.analysis.step_phases import find_step_phases
from gpumemtrace.schema import Kind
from gpumemtrace.trace import Trace


def reference(trace: Trace) -> dict[tuple[int, int, str], int]:
    """(device, step, phase) -> peak, one record after the other; "" = no phase."""
    highest: dict[tuple[int, int, str], int] = {}
    now = dict.fromkeys(trace.devices, 0)
    phase, step = "", None
    for batch, lines in LineStream(trace):
        raw = batch.raw
        for row in range(len(batch)):
            step = int(batch.step[0]) if step is None else step
            kind, device = int(raw["kind"][row]), int(lines.device[row])
            if kind == Kind.STEP:
                step = int(batch.step[row])
            if kind == Kind.PHASE and raw["thread"][row] == trace.driving_thread:
                path = trace.path_of_id(raw["size_bytes"][row : row + 1])[0]
                phase = trace.phase_paths[path][-1] if path >= 0 else ""
            if device >= 0:
                now[device] = int(lines.values["allocated"][row])
            for number, value in now.items():
                key = (number, step, phase)
                # At a mark a stretch begins: with the value of this moment.
                highest[key] = max(highest.get(key, 0), value)
    return {key: value for key, value in highest.items() if value > 0}


def found(trace: Trace) -> dict[tuple[int, int, str], int]:
    return {
        (one.device, int(step), name): int(one.peak_allocated_bytes[row, column])
        for one in find_step_phases(trace)
        for row, step in enumerate(one.number)
        for column, name in enumerate([*one.names, ""])
        if one.peak_allocated_bytes[row, column] >= 0
    }


@given(event_columns(), st.integers(1, 40))
def test_equals_the_reference(columns, batch_records):
    trace = Trace.from_events(columns, phase_names=PHASE_NAMES)
    object.__setattr__(trace._source, "batch_records", batch_records)
    assert found(trace) == reference(trace)


def test_a_phase_in_two_steps():
    builder = TraceBuilder().phase("forward").alloc(512, 3 * MIB).free(512).step(1)
    builder.alloc(1024, 5 * MIB).phase("").alloc(2048, MIB)
    assert found(builder.trace()) == {
        (0, 0, "forward"): 3 * MIB,
        (0, 1, "forward"): 5 * MIB,
        (0, 1, ""): 6 * MIB,
    }


def test_the_highest_of_a_step_is_the_peak_of_the_step():
    trace, _ = recorded.load("gpt2")
    (phases,), (peaks,) = find_step_phases(trace), find_peaks(trace)
    highest = phases.peak_allocated_bytes.max(axis=1)
    assert np.array_equal(phases.number, peaks.steps.number)
    assert np.array_equal(highest, peaks.steps.peak["allocated"])


def test_the_highest_phase_and_the_steps_that_it_sets():
    (one,) = find_step_phases(recorded.load("gpt2")[0])
    assert one.highest == (3362081792, 1, "backward")
    assert one.steps_set_by("backward") == 59
    assert one.steps_set_by("optimizer") == 1
    assert one.steps_set_by(None) == 0
    few = one.rows(np.array([0, 2]))
    assert few.number.tolist() == [0, 2]
    assert few.highest == (3362081792, 2, "backward")
