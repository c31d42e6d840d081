"""One course of action for sync and async callers.

What is to be done stands in a generator. It yields operations on a port, each a function of it, and
receives what they return or raise. A sync port does them at once, an async port awaits them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
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
                outcome = await whole(step(port))
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


async def whole(work: Awaitable[T]) -> T:
    """Await it, and be cancelled by every cancellation.

    Up to Python 3.11 ``asyncio.wait_for``, by which redis-py sends, keeps one to itself that comes
    just when it is done. The caller would then go on with what nobody wants any more.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        raise
    return task.result()


async def sleep_until(event: asyncio.Event, seconds: float) -> None:
    """Sleep until it is set, or for so long. Not ``wait_for``, for the same reason."""
    waiter = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([waiter], timeout=seconds)
    finally:
        waiter.cancel()
