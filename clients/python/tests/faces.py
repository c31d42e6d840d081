"""One suite for both: the sync classes behind awaitables, and the asyncio ones as they are."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import redis_seat

_threads = ThreadPoolExecutor(max_workers=64)


async def in_thread(function: Any, *args: Any, **options: Any) -> Any:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads, lambda: function(*args, **options))


class Threaded:
    """A sync object whose methods run in threads and are awaited."""

    def __init__(self, inner: Any) -> None:
        self.__dict__["inner"] = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if name == "seat":
            return lambda *args, **options: Threaded(value(*args, **options))
        if name == "commands":
            return Threaded(value)
        if inspect.ismethod(value) and name != "raise_if_lost":
            return lambda *args, **options: in_thread(value, *args, **options)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)

    async def __aenter__(self) -> Any:
        entered = await in_thread(self.inner.__enter__)
        return self if entered is self.inner else Threaded(entered)

    async def __aexit__(self, *args: Any) -> Any:
        return await in_thread(self.inner.__exit__, *args)


class Face:
    """How a test reaches the sync or the asyncio half of the package."""

    def __init__(self, name: str, library: str = "redis") -> None:
        self.is_async = name == "async"
        self.library = library
        path = f"{library}.asyncio" if self.is_async else library
        self.module = importlib.import_module(path)
        cluster = "Redis" if library == "redis" else "Valkey"
        self.client_class = getattr(self.module, cluster)
        self.cluster_class = getattr(self.module, f"{cluster}Cluster")
        retry = importlib.import_module(f"{path}.retry").Retry
        no_backoff = importlib.import_module(f"{library}.backoff").NoBackoff
        self.retries = lambda times: retry(no_backoff(), times)

    def client(self, url: str, **options: Any) -> Any:
        options = {"socket_timeout": 5, "retry": self.retries(0), **options}
        return self.client_class.from_url(url, **options)

    def _shown(self, sync: Any, asynchronous: Any, *args: Any, **options: Any) -> Any:
        if self.is_async:
            return asynchronous(*args, **options)
        return Threaded(sync(*args, **options))

    def commands(self, client: Any) -> Any:
        return self._shown(redis_seat.SeatCommands, redis_seat.AsyncSeatCommands, client)

    def scripts(self, client: Any) -> Any:
        return self._shown(redis_seat.ScriptSeats, redis_seat.AsyncScriptSeats, client)

    def pool(self, client: Any, *args: Any, **options: Any) -> Any:
        pools = redis_seat.SeatPool, redis_seat.AsyncSeatPool
        return self._shown(*pools, client, *args, **options)

    def pool_from_url(self, *args: Any, **options: Any) -> Any:
        pools = redis_seat.SeatPool, redis_seat.AsyncSeatPool
        return self._shown(*(pool.from_url for pool in pools), *args, **options)

    async def close_pool(self, pool: Any) -> None:
        await (pool.aclose() if self.is_async else pool.close())

    async def close(self, client: Any) -> None:
        if self.is_async:
            await client.aclose()
        else:
            client.close()
