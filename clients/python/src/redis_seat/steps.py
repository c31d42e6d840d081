"""One course of action for sync and async callers.

What is to be done stands in a generator. It yields operations on a port, each a function of it, and
receives what they return or raise. A sync port does them at once, an async port awaits them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

Steps = Generator[Callable[[Any], Any], Any, T]


def drive(steps: Steps[T], port: Any) -> T:
    """Take the steps on a port whose methods return values."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = step(port)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def drive_async(steps: Steps[T], port: Any) -> T:
    """Take the steps on a port whose methods return awaitables."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = await step(port)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result
