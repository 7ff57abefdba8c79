"""Automatic phases and steps of unmodified training programs, on the simulated GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from programs import PLACE_OF, places, record_programs

from gpumemtrace.trace import Trace

pytestmark = pytest.mark.simgpu

TOGETHER = (
    "plain_loop",
    "data_loader_workers",
    "accumulation",
    "grad_scaler",
    "checkpointing",
    "eval_loop",
    "lbfgs",
    "gan",
    "compiled",
    "trouble",
    "parts",
    "ddp",
    "threads",
    "by_hand",
)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    return record_programs(TOGETHER, tmp_path_factory.mktemp("phases"))


def expect(*lines: tuple[str, str, Iterable[int], int]) -> Counter[tuple[str, str, int]]:
    """Each line: a place is in that phase, so many times in each of these steps."""
    return Counter(
        {(place, phase, step): times for place, phase, steps, times in lines for step in steps}
    )


def test_a_plain_loop(traces: dict[str, Trace]) -> None:
    trace = traces["plain_loop"]
    assert len(trace.steps) == 3
    assert places(trace) == expect(
        ("init", "init", [0], 1),
        ("batch", "init", [0], 1),
        ("batch", "data", [1, 2], 1),
        ("forward", "forward", range(3), 1),
        ("checkpointed", "forward", range(3), 2),
        ("loss", "forward", range(3), 1),
        ("backward", "backward", range(3), 1),
        ("clip", "backward", range(3), 1),
        ("step", "optimizer", range(3), 1),
        ("after_step", "data", [1, 2, 3], 1),
    )
    assert [span.name for span in trace.phases if span.entered][:8] == [
        "init", "zero_grad", "forward", "backward", "optimizer", "data", "zero_grad", "forward",
    ]  # fmt: skip


def test_a_data_loader_with_workers(traces: dict[str, Trace]) -> None:
    trace = traces["data_loader_workers"]
    assert len(trace.steps) == 6
    assert places(trace) == expect(
        ("init", "init", [0], 1),
        ("batch", "data", range(6), 1),
        ("forward", "forward", range(6), 1),
        ("checkpointed", "forward", range(6), 2),
        ("loss", "forward", range(6), 1),
        ("backward", "backward", range(6), 1),
        ("clip", "backward", range(6), 1),
        ("step", "optimizer", range(6), 1),
    )


def test_gradient_accumulation_is_one_step_per_optimizer_step(traces: dict[str, Trace]) -> None:
    trace = traces["accumulation"]
    assert len(trace.steps) == 3
    assert places(trace) == expect(
        ("batch", "init", [0], 1),
        ("batch", "backward", range(3), 3),  # between the backwards nothing else begins
        ("batch", "data", [1, 2], 1),
        ("forward", "forward", range(3), 4),
        ("checkpointed", "forward", range(3), 8),
        ("loss", "forward", range(3), 4),
        ("backward", "backward", range(3), 4),
        ("clip", "backward", range(3), 1),
        ("step", "optimizer", range(3), 1),
    )


def test_a_gradient_scaler(traces: dict[str, Trace]) -> None:
    trace = traces["grad_scaler"]
    assert len(trace.steps) == 3
    found = places(trace)
    assert found["loss", "forward", 2] == 1
    assert found["clip", "backward", 2] == 1
    assert found["step", "optimizer", 2] == 1
    assert {phase for place, phase, _ in found if place == "batch"} == {"init", "data"}


def test_recomputation_is_backward(traces: dict[str, Trace]) -> None:
    trace = traces["checkpointing"]
    assert len(trace.steps) == 4
    found = places(trace)
    for step in range(4):  # non-reentrant, then reentrant
        assert found["forward", "forward", step] == 1
        assert found["checkpointed", "forward", step] == 2
        assert found["checkpointed", "backward", step] == 2
        assert found["backward", "backward", step] == 1
        assert found["step", "optimizer", step] == 1
    assert sum(found.values()) == 4 * 9


def test_an_eval_loop_and_a_teacher(traces: dict[str, Trace]) -> None:
    trace = traces["eval_loop"]
    assert len(trace.steps) == 4
    found = places(trace)
    for step in range(4):
        assert found["forward", "forward", step] == 1
        assert found["loss", "forward", step] == 1
        assert found["backward", "backward", step] == 1
        # The teacher, then after each second step 3 batches of validation and one with gradients.
        evaluated = 5 if step == 2 else 1
        assert found["eval", "eval", step] == evaluated
        assert found["loss", "eval", step] == evaluated - 1
    assert {phase for place, phase, _ in found if place == "eval"} == {"eval"}


def test_an_optimizer_with_a_closure(traces: dict[str, Trace]) -> None:
    trace = traces["lbfgs"]
    assert len(trace.steps) == 2
    found = places(trace)
    assert {(place, phase) for place, phase, _ in found} == {
        ("batch", "init"),
        ("forward", "forward"),
        ("checkpointed", "forward"),
        ("loss", "forward"),
        ("backward", "backward"),
        ("step", "optimizer"),
        ("after_step", "data"),
    }
    assert [found["after_step", "data", step] for step in (1, 2)] == [1, 1]


def test_of_two_optimizers_one_counts(traces: dict[str, Trace]) -> None:
    # The discriminator steps first, and twice in an iteration: its steps are counted.
    trace = traces["gan"]
    assert len(trace.steps) == 6
    assert sum(n for (place, _, _), n in places(trace).items() if place == "step") == 9


def test_a_compiled_model(traces: dict[str, Trace]) -> None:
    trace = traces["compiled"]
    assert len(trace.steps) == 3
    found = places(trace)
    for step in range(3):
        assert found["forward", "forward", step] == 1
        assert found["loss", "forward", step] == 1
        assert found["clip", "backward", step] == 1
        assert found["step", "optimizer", step] == 1
    assert found["eval", "eval", 3] == 1


def test_calls_that_raise(traces: dict[str, Trace]) -> None:
    trace = traces["trouble"]
    found = places(trace)
    # 3 good iterations, 6 whose forward raises, 3 good ones, 2 whose step raises, 2 good ones.
    assert len(trace.steps) == 8
    assert total(found, "batch", "data") == 12 + 4
    assert total(found, "forward", "forward") == 16
    assert total(found, "loss", "forward") == 10
    assert total(found, "clip", "backward") == 10
    assert total(found, "step", "optimizer") == 10
    assert total(found, "after_step", "data") == 8
    assert total(found, "after_step", "forward") == 6
    assert total(found, "after_step", "optimizer") == 2
    assert total(found, "batch", "optimizer") == 4  # zero_grad is over, and nothing else began


def total(found: Counter[tuple[str, str, int]], place: str, phase: str) -> int:
    return sum(times for key, times in found.items() if key[:2] == (place, phase))


def test_models_in_parts_and_models_that_train_themselves(traces: dict[str, Trace]) -> None:
    trace = traces["parts"]
    assert len(trace.steps) == 4
    found = places(trace)
    for step in (0, 1):
        assert found["checkpointed", "forward", step] == 20
        assert found["loss", "forward", step] == 1
        assert found["clip", "backward", step] == 1
    for step in (2, 3):
        assert found["forward", "forward", step] == 1
        assert found["backward", "backward", step] == 1
        assert found["collate", "forward", step] == 1
        assert found["step", "optimizer", step] == 1
        assert found["after_step", "forward", step + 1] == 1


def test_distributed_data_parallel(traces: dict[str, Trace]) -> None:
    trace = traces["ddp"]
    assert len(trace.steps) == 2
    found = places(trace)
    for step in (0, 1):
        assert found["forward", "forward", step] == 2
        assert found["loss", "forward", step] == 2
        assert found["backward", "backward", step] == 2
        assert found["clip", "backward", step] == 1


def test_threads(traces: dict[str, Trace]) -> None:
    trace = traces["threads"]
    assert len(trace.steps) == 3
    found = places(trace)
    assert total(found, "collate", "data") == 3
    assert total(found, "forward", "forward") == 3
    assert total(found, "backward", "backward") == 3  # noted in autograd's thread


def test_phases_by_hand_around_and_inside(traces: dict[str, Trace]) -> None:
    trace = traces["by_hand"]
    assert len(trace.steps) == 6 - 2  # two automatic ones, taken over by the first step()
    paths: dict[str, set[str]] = {}
    for chunk in trace.chunks():
        for size, path in zip(chunk.raw["size_bytes"], chunk.phase_path, strict=True):
            if size in PLACE_OF:
                paths.setdefault(PLACE_OF[size], set()).add("/".join(trace.phase_paths[path]))
    assert paths == {
        "init": {"setup"},
        "batch": {"train"},
        "forward": {"train/forward"},
        "checkpointed": {"train/forward", "train/distill/eval"},
        "collate": {"train/forward/distill"},
        "eval": {"train/distill/eval"},
        "loss": {"train/forward"},
        "backward": {"train/backward"},
        "clip": {"train/backward/clip"},
        "step": {"train/optimizer"},
        "after_step": {"data"},
    }
