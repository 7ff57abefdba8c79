"""A phase as a decorator: of functions, generators and coroutines.

A generator's or coroutine's phase is open only while its own body runs. While it is suspended, the
consumer's code runs in the same thread, and must not be counted as part of it.

A decorated function's arguments live until it returns, whatever it deletes itself; so do those of
any decorated function. Where that memory matters, use ``with phase(...)`` inside.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["decorate"]

Phase = AbstractContextManager[Any]


def decorate(phase: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` running in ``phase`` each time; the same kind of function as it was.

    ``TypeError`` if it can't be called.
    """
    if not callable(function):
        raise TypeError(f"{phase!r} decorates a function, not {function!r}")
    if inspect.isasyncgenfunction(function):
        return _decorate_async_generator(phase, function)
    if inspect.iscoroutinefunction(function):
        return _decorate_coroutine(phase, function)
    if inspect.isgeneratorfunction(function):
        return _decorate_generator(phase, function)

    @functools.wraps(function)
    def in_phase(*args: Any, **kwargs: Any) -> Any:
        with phase:
            return function(*args, **kwargs)

    return in_phase


def _decorate_generator(phase: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def in_phase(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from _resume_in(phase, function(*args, **kwargs)))

    return in_phase


def _decorate_coroutine(phase: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def in_phase(*args: Any, **kwargs: Any) -> Any:
        return await _await_in(phase, function(*args, **kwargs))

    return in_phase


def _decorate_async_generator(phase: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def in_phase(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        generator = function(*args, **kwargs)
        resume = generator.__anext__()
        while True:
            try:
                value = [await _await_in(phase, resume)]
            except StopAsyncIteration:
                return
            try:
                resume = generator.asend((yield value.pop()))
            except GeneratorExit:
                await _await_in(phase, generator.aclose())
                raise
            except BaseException as error:
                resume = generator.athrow(error)

    return in_phase


@types.coroutine
def _await_in(phase: Phase, awaitable: Awaitable[Any]) -> Generator[Any, Any, Any]:
    return (yield from _resume_in(phase, awaitable.__await__()))


def _resume_in(phase: Phase, body: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Run ``body`` like ``yield from`` does, with ``phase`` open while it runs."""
    run = _Run(phase, body)
    while run.resume():
        try:
            run.send((yield run.take()))
        except GeneratorExit:
            with phase:
                body.close()
            raise
        except BaseException as error:
            run.throw(error)
    return run.take()


class _Run:
    """A generator's body between its suspensions.

    What goes in and comes out is handed on, never kept: a tensor that the consumer drops has to be
    freed then, as without us.
    """

    def __init__(self, phase: Phase, body: Generator[Any, Any, Any]) -> None:
        self._phase = phase
        self._body = body
        self._continue: Callable[[Any], Any] = body.send
        self._value: Any = None

    def resume(self) -> bool:
        """Run the body to its next ``yield``, or to its end (False)."""
        try:
            with self._phase:
                self._value = self._continue(self.take())
        except StopIteration as stop:
            self._value = stop.value
            return False
        return True

    def take(self) -> Any:
        """Return what was yielded, returned or sent, once."""
        value, self._value = self._value, None
        return value

    def send(self, value: Any) -> None:
        """Resume with ``value`` next."""
        self._continue, self._value = self._body.send, value

    def throw(self, error: BaseException) -> None:
        """Resume by raising ``error`` next."""
        self._continue, self._value = self._body.throw, error
