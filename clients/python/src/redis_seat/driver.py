"""What differs between the clients that there are, in one place.

Sync and asyncio, alone, in a cluster and behind a Sentinel, of redis-py from 5.0.1 on and of
valkey-py. Of their inside this uses how they make a connection (``connection_class`` and
``connection_kwargs``) and what a connection can do (``connect``, ``pack_commands``,
``send_packed_command``, ``read_response`` and ``disconnect``), which all of them share.
"""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import redis.asyncio.retry
import redis.retry
from redis.backoff import NoBackoff

#: Makes a connection that is not of the client's pool. It is not connected yet.
Connector = Callable[[], Any]


class Driver:
    """Knows the library that a client is of."""

    def __init__(self, client: Any) -> None:
        modules = (cls.__module__.partition(".")[0] for cls in type(client).__mro__)
        self.library = next((name for name in modules if name in ("redis", "valkey")), "redis")
        errors = self._module("exceptions")
        self.base_error: type[Exception] = getattr(
            errors, "ValkeyError" if self.library == "valkey" else "RedisError"
        )
        self._cluster_error: type[Exception] = getattr(
            errors,
            "ValkeyClusterException" if self.library == "valkey" else "RedisClusterException",
        )
        #: An error that the server sent as its reply.
        self.response_error: type[Exception] = errors.ResponseError
        self.no_script_error: type[Exception] = errors.NoScriptError
        self._unavailable = (errors.ConnectionError, errors.TimeoutError)
        self._transient = (
            errors.ConnectionError,
            errors.TimeoutError,
            errors.TryAgainError,
            errors.ReadOnlyError,
            errors.ClusterDownError,
            errors.MasterDownError,
            errors.MovedError,
            errors.AskError,
        )
        # They are connection errors to the library, and no retry will mend them.
        self._lasting = (errors.AuthenticationError, errors.AuthorizationError)

    def is_transient(self, error: BaseException) -> bool:
        """Whether asking again may help: the connection or the server was away."""
        if isinstance(error, self._lasting):
            return False
        if isinstance(error, self._cluster_error):
            return "cannot be connected" in str(error)
        # A server that becomes a replica sends it to whoever is blocked.
        unblocked = isinstance(error, self.base_error) and str(error).startswith("UNBLOCKED")
        return unblocked or isinstance(error, self._transient)

    def is_unavailable(self, error: BaseException) -> bool:
        """Whether the server could not be reached, or let nobody in."""
        return isinstance(error, self._unavailable)

    def _module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{self.library}.{name}")

    def no_retry(self, *, asynchronous: bool) -> Any:
        retry = self._module("asyncio.retry" if asynchronous else "retry").Retry
        return retry(self._module("backoff").NoBackoff(), 0)


class Timeouts:
    """How long a call of a client may take: ``socket_timeout`` seconds, and ``attempts`` of it.

    ``pauses`` is how many seconds the client may sleep between them.
    """

    def __init__(self, client: Any) -> None:
        connection = _any_connection(client)
        self.socket_timeout: float = (
            math.inf if connection.socket_timeout is None else float(connection.socket_timeout)
        )
        self.attempts = _attempts(connection.retry)
        self.pauses = _pauses(connection.retry)
        if is_cluster(client):
            retries = getattr(client, "cluster_error_retry_attempts", None)
            self.attempts *= _attempts(client.retry) if retries is None else 1 + retries
            self.pauses += _pauses(getattr(client, "retry", None))

    @property
    def budget(self) -> float:
        """Seconds until the client gives a call up."""
        return self.socket_timeout * self.attempts


def client_options(socket_timeout: float, *, asynchronous: bool = False) -> dict[str, Any]:
    """What a client of redis-py is made with, so that it gives up in time: after two attempts."""
    retry = redis.asyncio.retry.Retry if asynchronous else redis.retry.Retry
    return {
        "socket_timeout": socket_timeout,
        "socket_connect_timeout": socket_timeout,
        "retry": retry(NoBackoff(), 1),
        # Without them 5.0.1 tries a connection again, and a command never.
        "retry_on_error": [redis.ConnectionError, redis.TimeoutError],
    }


def is_async(client: Any) -> bool:
    # By its class, since instrumentation may have wrapped the method.
    modules = (cls.__module__.split(".") for cls in type(client).__mro__)
    return any("asyncio" in names for names in modules) or inspect.iscoroutinefunction(
        client.execute_command
    )


def is_cluster(client: Any) -> bool:
    return hasattr(client, "nodes_manager")


def connector(client: Any, key: Any, driver: Driver) -> Connector:
    """For a connection of one's own to where ``key`` is, which gives up at the first error.

    So nothing that is sent on it can be sent a second time, later, behind the caller's back.
    """
    retry = driver.no_retry(asynchronous=is_async(client))

    def make() -> Any:
        connection_class, options = _origin(client, key)
        return connection_class(**{**options, "retry": retry, "health_check_interval": 0})

    return make


def _origin(client: Any, key: Any) -> tuple[Any, dict[str, Any]]:
    if not is_cluster(client):
        pool = client.connection_pool
        return pool.connection_class, pool.connection_kwargs
    return _origin_of(client, client.get_node_from_key(key))


def _origin_of(cluster: Any, node: Any) -> tuple[Any, dict[str, Any]]:
    if is_async(cluster):
        return node.connection_class, node.connection_kwargs
    client_of = getattr(cluster, "get_redis_connection", None) or cluster.get_valkey_connection
    pool = client_of(node).connection_pool
    return pool.connection_class, pool.connection_kwargs


def _any_connection(client: Any) -> Any:
    """One that is never connected, to read off it what the client's options come to."""
    if not is_cluster(client):
        connection_class, options = _origin(client, None)
    elif is_async(client):
        # It knows of no other nodes before its first command.
        nodes = client.nodes_manager.startup_nodes.values()
        connection_class, options = _origin_of(client, next(iter(nodes)))
    else:
        connection_class, options = _origin_of(client, client.get_nodes()[0])
    return connection_class(**options)


def _attempts(retry: Any) -> float:
    retries: int = retry.get_retries() if hasattr(retry, "get_retries") else retry._retries
    return math.inf if retries < 0 else 1 + retries


def _pauses(retry: Any) -> float:
    if retry is None or not math.isfinite(_attempts(retry)):
        return 0.0
    backoff = retry._backoff
    return sum(
        float(getattr(backoff, "_cap", backoff.compute(failures)))
        for failures in range(1, int(_attempts(retry)))
    )
