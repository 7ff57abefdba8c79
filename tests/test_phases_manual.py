"""Phases, steps and texts marked by hand: nesting, decorators, threads, exceptions. No GPU."""

from __future__ import annotations

import asyncio
import threading
import timeit
import warnings
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from marks_session import entered, recording_marks

import gpumemtrace
from gpumemtrace import _core
from gpumemtrace.capture.steps import counter
from gpumemtrace.schema import Kind


def test_phases_nest_and_resume(tmp_path: Path) -> None:
    with recording_marks(tmp_path / "t.gmt") as opened:
        with gpumemtrace.phase("train"):
            with gpumemtrace.phase("eval"), gpumemtrace.phase("train"):
                assert gpumemtrace.now().phase == "train/eval/train"
            assert gpumemtrace.now().phase == "train"
        assert gpumemtrace.now().phase == ""
    trace = opened()
    assert [("/".join(span.path), span.entered) for span in trace.phases] == [
        ("train", True),
        ("train/eval", True),
        ("train/eval/train", True),
        ("train/eval", False),
        ("train", False),
    ]


def test_one_object_many_times_also_within_itself(tmp_path: Path) -> None:
    phase = gpumemtrace.phase("x")
    with recording_marks(tmp_path / "t.gmt") as opened:
        with phase, phase:
            pass
        with phase:
            pass
    assert entered(opened()) == ["x", "x/x", "x"]


def test_an_exception_closes_and_goes_on(tmp_path: Path) -> None:
    with recording_marks(tmp_path / "t.gmt"):
        with pytest.raises(KeyError), gpumemtrace.phase("a"), gpumemtrace.phase("b"):
            raise KeyError("x")
        assert gpumemtrace.now().phase == ""


def test_decorated_functions_and_recursion(tmp_path: Path) -> None:
    @gpumemtrace.phase("f")
    def f(n: int) -> int:
        """Doc."""
        return n and 1 + f(n - 1)

    assert f(2) == 2  # without a session
    assert f.__name__ == "f"
    assert f.__doc__ == "Doc."
    with recording_marks(tmp_path / "t.gmt") as opened:
        assert f(2) == 2
    assert entered(opened()) == ["f", "f/f", "f/f/f"]


def test_a_generator_is_in_its_phase_only_while_it_runs(tmp_path: Path) -> None:
    seen = []

    @gpumemtrace.phase("g")
    def numbers() -> Iterator[int]:
        try:
            while True:
                seen.append(gpumemtrace.now().phase)
                got = yield 1
                seen.append(got)
        except ValueError:
            seen.append(gpumemtrace.now().phase)
            yield 2
        finally:
            seen.append("closed in " + gpumemtrace.now().phase)

    with recording_marks(tmp_path / "t.gmt"):
        generator = numbers()
        with gpumemtrace.phase("consumer"):
            assert next(generator) == 1
            assert gpumemtrace.now().phase == "consumer"
            assert generator.send("sent") == 1
            assert generator.throw(ValueError) == 2
            generator.close()
        assert gpumemtrace.now().phase == ""
    assert seen == ["consumer/g", "sent", "consumer/g", "consumer/g", "closed in consumer/g"]


def test_a_generators_return_value_passes_through() -> None:
    @gpumemtrace.phase("g")
    def inner() -> Iterator[int]:
        yield 1
        return "result"

    def outer() -> Iterator[int]:
        assert (yield from inner()) == "result"

    assert list(outer()) == [1]


def test_what_a_generator_yields_or_is_sent_is_not_kept_alive() -> None:
    class Big:
        pass

    @gpumemtrace.phase("g")
    def pass_on() -> Iterator[Big]:
        while True:
            got = yield Big()
            del got

    generator = pass_on()
    yielded = next(generator)
    sent = Big()
    references = [weakref.ref(yielded), weakref.ref(sent)]
    del yielded
    assert references[0]() is None
    generator.send(sent)
    del sent
    assert references[1]() is None


def test_coroutines_interleave(tmp_path: Path) -> None:
    seen = []

    def worker(name: str) -> object:
        @gpumemtrace.phase(name)
        async def work() -> str:
            for _ in range(2):
                await asyncio.sleep(0)
                seen.append((name, gpumemtrace.now().phase))
            return name

        return work()

    @gpumemtrace.phase("agen")
    async def generate() -> AsyncIterator[str]:
        for _ in range(2):
            await asyncio.sleep(0)
            yield gpumemtrace.now().phase

    async def main() -> None:
        assert await asyncio.gather(worker("a"), worker("b")) == ["a", "b"]
        async for inside in generate():
            assert inside == "agen"
            assert gpumemtrace.now().phase == ""

    with recording_marks(tmp_path / "t.gmt"):
        asyncio.run(main())
    assert sorted(seen) == [("a", "a"), ("a", "a"), ("b", "b"), ("b", "b")]


def test_coroutines_that_take_turns_in_a_phase_of_their_own(tmp_path: Path) -> None:
    # One thread, one stack: what is opened in another's turn nests, and none stays open.
    seen: list[str] = []

    async def work(name: str, turns: int) -> None:
        with gpumemtrace.phase(name):
            for _ in range(turns):
                await asyncio.sleep(0)
                seen.append(gpumemtrace.now().phase)

    async def main() -> None:
        cancelled = asyncio.create_task(work("cancelled", 1000))
        await asyncio.gather(work("a", 2), work("b", 3))
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        seen.append(gpumemtrace.now().phase)
        with gpumemtrace.phase("after"):
            seen.append(gpumemtrace.now().phase)

    with recording_marks(tmp_path / "t.gmt") as opened:
        asyncio.run(main())
    # What ended out of turn lasts until everything opened after it has ended, too.
    assert seen[0] == "cancelled/a/b"
    assert set(seen[:-2]) == {"cancelled/a/b", "cancelled"}
    assert seen[-2:] == ["", "after"]
    assert [(span.path, span.entered) for span in opened().phases][-1] == (("after",), True)


def test_a_suspended_generator_that_keeps_a_phase_open(tmp_path: Path) -> None:
    def opener() -> Iterator[None]:
        with gpumemtrace.phase("inner"):
            yield

    with recording_marks(tmp_path / "t.gmt"):
        generator = opener()
        next(generator)
        with gpumemtrace.phase("later"):
            generator.close()
            assert gpumemtrace.now().phase == "inner/later"
        assert gpumemtrace.now().phase == ""


def test_each_thread_has_its_own_phases(tmp_path: Path) -> None:
    def prefetch() -> None:
        with gpumemtrace.phase("prefetch"):
            gpumemtrace.mark("in the thread")

    with recording_marks(tmp_path / "t.gmt") as opened, gpumemtrace.phase("main"):
        thread = threading.Thread(target=prefetch)
        thread.start()
        thread.join()
        assert gpumemtrace.now().phase == "main"
    spans = {"/".join(span.path): span.thread for span in opened().phases}
    assert set(spans) == {"main", "prefetch"}
    assert spans["main"] != spans["prefetch"]


def test_wrap_methods_of_one_object(tmp_path: Path) -> None:
    class Trainer:
        def generate(self, n: int) -> int:
            return n + 1

        def update(self) -> str:
            return gpumemtrace.now().phase

    trainer = Trainer()
    with pytest.raises(AttributeError):
        gpumemtrace.wrap(trainer, {"generate": "rollout", "missing": "x"})
    assert "generate" not in vars(trainer)
    assert gpumemtrace.wrap(trainer, {"generate": "rollout", "update": "weight sync"}) is trainer
    with recording_marks(tmp_path / "t.gmt") as opened:
        assert trainer.generate(1) == 2
        assert trainer.update() == "weight sync"
        assert Trainer().update() == ""
    assert entered(opened()) == ["rollout", "weight sync"]


def test_steps_by_hand(tmp_path: Path) -> None:
    with recording_marks(tmp_path / "t.gmt") as opened:
        gpumemtrace.step(0)  # it is going on already
        assert gpumemtrace.now().step == 0
        gpumemtrace.step(1)
        gpumemtrace.step()
        assert gpumemtrace.now().step == 2
        gpumemtrace.step(100)
        with pytest.warns(RuntimeWarning, match="steps only count up"):
            gpumemtrace.step(7)
        assert gpumemtrace.now().step == 101
    assert [step.number for step in opened().steps] == [0, 1, 2, 100]


@pytest.mark.parametrize("wrong", ["a", 1.5, 2**70, object()])
def test_a_number_that_no_step_can_have_harms_nothing(tmp_path: Path, wrong: object) -> None:
    with recording_marks(tmp_path / "t.gmt") as opened:
        gpumemtrace.step(1)
        with pytest.warns(RuntimeWarning, match="so step 2 begins") as warned:
            gpumemtrace.step(wrong)  # type: ignore[arg-type]
        assert warned[0].filename == __file__
        gpumemtrace.step()
        assert gpumemtrace.now().step == 3
    assert [step.number for step in opened().steps] == [1, 2]


def test_steps_that_do_not_begin_at_0(tmp_path: Path) -> None:
    with recording_marks(tmp_path / "t.gmt") as opened:
        gpumemtrace.mark("loading")
        for number in range(100, 103):
            gpumemtrace.step(number)
    assert [step.number for step in opened().steps] == [100, 101]


def test_a_first_step_by_hand_takes_over_the_automatic_count(tmp_path: Path) -> None:
    optimizer = Owner()
    with recording_marks(tmp_path / "t.gmt") as opened:
        for _ in range(3):  # an iteration: two optimizer steps, then the user's word
            counter.optimizer_stepped(optimizer)
            counter.optimizer_stepped(optimizer)
            gpumemtrace.step()
    assert [step.number for step in opened().steps] == [0, 1, 2, 3]


class Owner:
    """Stands for an optimizer."""


def test_one_optimizer_owns_the_steps_until_it_is_gone(tmp_path: Path) -> None:
    first, second, third = Owner(), Owner(), Owner()
    with recording_marks(tmp_path / "u.gmt"):
        for _ in range(3):
            counter.optimizer_stepped(first)
            for _ in range(6):
                counter.optimizer_stepped(second)
        assert counter.number == 3
        for _ in range(5):  # the first has stopped: after twice its usual gap the second takes over
            counter.optimizer_stepped(second)
        assert counter.number == 3
        counter.optimizer_stepped(second)
        assert counter.number == 4
        del second
        counter.optimizer_stepped(third)  # the owner is gone: at once
        assert counter.number == 5


def test_texts(tmp_path: Path) -> None:
    with recording_marks(tmp_path / "t.gmt") as opened:
        gpumemtrace.mark("checkpoint saved")
        gpumemtrace.mark("odd \ud800 text")  # a lone surrogate is no reason to fail
    trace = opened()
    marks = trace.marks.of(Kind.MARK)
    assert [trace.text(int(id)) for id in marks["size_bytes"]] == ["checkpoint saved", "odd ? text"]


def test_mode_none_records_no_phase_and_no_step(tmp_path: Path) -> None:
    with (
        recording_marks(tmp_path / "t.gmt", _core.PhaseMode.NONE) as opened,
        gpumemtrace.phase("x"),
    ):
        pass
    assert entered(opened()) == []


def test_without_a_session_nothing_happens() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gpumemtrace.phase("x"):
            gpumemtrace.step()
            gpumemtrace.step(-3)
            gpumemtrace.mark("text")
            gpumemtrace.tag("not even a tensor", "name")
            gpumemtrace.watch("not even a module")
        now = gpumemtrace.now()
    assert (now.phase, now.step, now.events, now.dropped) == ("", 0, 0, 0)


def test_wrong_arguments() -> None:
    for wrong in (None, 3, print):
        with pytest.raises(TypeError):
            gpumemtrace.phase(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        gpumemtrace.phase()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        gpumemtrace.phase("x")("not a function")  # type: ignore[type-var]
    assert gpumemtrace.phase(name="x").name == "x"
    assert repr(gpumemtrace.phase("x")) == "phase('x')"


@pytest.mark.alone
def test_what_marks_cost(tmp_path: Path) -> None:
    """The fastest of many rounds: what else runs on the machine says nothing about it."""

    def with_phase() -> None:
        with gpumemtrace.phase("forward"):
            pass

    def best_ns(function: object) -> float:
        return min(timeit.repeat(function, number=1000, repeat=50)) * 1e6

    assert best_ns(with_phase) < 400  # 120 on a quiet machine
    with recording_marks(tmp_path / "t.gmt"):
        assert best_ns(with_phase) < 2000  # two marks: 220
        assert best_ns(gpumemtrace.step) < 1000
        assert best_ns(lambda: gpumemtrace.mark("text")) < 1000
        assert best_ns(gpumemtrace.now) < 50_000
