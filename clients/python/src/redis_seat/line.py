"""A connection that belongs to a pool's renewer alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from redis_seat.driver import Driver, connector, is_cluster
from redis_seat.wire import Call

T = TypeVar("T")


class BaseLine:
    def __init__(self, client: Any, key: Any) -> None:
        self._client = client
        self._key = key
        self._driver = Driver(client)
        self._connector = connector(client, key, self._driver)
        self._connection: Any = None
        self._is_lost = False

    @property
    def _must_look(self) -> bool:
        """Whether the cluster is to be asked first where the key is now."""
        return self._is_lost and is_cluster(self._client)

    def _decode(self, call: Call[Any], reply: Any) -> Any:
        return reply if isinstance(reply, Exception) else call.decode(reply)

    def _sends_away(self, answers: Sequence[object]) -> bool:
        """Whether the server has said that it is not the one to ask, now or any more."""
        return any(
            isinstance(answer, Exception) and self._driver.is_transient(answer)
            for answer in answers
        )


class Line(BaseLine):
    """Sends each command at most once."""

    def connect(self) -> None:
        """Connect, if need be, without sending anything of the pool's."""
        if self._connection is None:
            if self._must_look:
                self._client.execute_command("SEAT.COUNT", self._key)
            self._connection = self._connector()
        try:
            self._connection.connect()
        except BaseException:
            self.close()
            raise

    def ask(self, calls: Sequence[Call[T]]) -> list[T | Exception]:
        """Send all, then read all. An error reply is returned in its place."""
        try:
            packed = self._connection.pack_commands([call.args for call in calls])
            self._connection.send_packed_command(packed)
            answers = [self._decode(call, self._read()) for call in calls]
        except BaseException:
            self.close()
            raise
        if self._sends_away(answers):
            self.close()
        return answers

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._is_lost = True
        if connection is not None:
            connection.disconnect()

    def _read(self) -> Any:
        try:
            return self._connection.read_response()
        except self._driver.response_error as error:
            return error


class AsyncLine(BaseLine):
    """The same for an asyncio client."""

    async def connect(self) -> None:
        if self._connection is None:
            if self._must_look:
                await self._client.execute_command("SEAT.COUNT", self._key)
            self._connection = self._connector()
        try:
            await self._connection.connect()
        except BaseException:
            await self.close()
            raise

    async def ask(self, calls: Sequence[Call[T]]) -> list[T | Exception]:
        try:
            packed = self._connection.pack_commands([call.args for call in calls])
            await self._connection.send_packed_command(packed)
            answers = [self._decode(call, await self._read()) for call in calls]
        except BaseException:
            await self.close()
            raise
        if self._sends_away(answers):
            await self.close()
        return answers

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._is_lost = True
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _read(self) -> Any:
        try:
            return await self._connection.read_response()
        except self._driver.response_error as error:
            return error
