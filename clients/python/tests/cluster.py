"""Three masters that share the slots."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import redis

from redis_seat.testing import SeatServer

from conftest import eventually

SLOTS = 16384


@contextlib.contextmanager
def three_masters(*, module: str | None = None) -> Iterator[list[SeatServer]]:
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(
                SeatServer(
                    module=module,
                    options={"cluster-enabled": "yes", "cluster-node-timeout": "5000"},
                    module_arguments="lease-grace 0",
                )
            )
            for _ in range(3)
        ]
        clients = [
            stack.enter_context(
                redis.Redis(port=node.port, decode_responses=True, socket_timeout=5)
            )
            for node in nodes
        ]
        for number, client in enumerate(clients):
            first, end = (SLOTS * each // 3 for each in (number, number + 1))
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER", "ADDSLOTS", *range(first, end))
            client.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        eventually("the nodes agree", lambda: all(_is_up(client) for client in clients), 30)
        yield nodes


def _is_up(client: redis.Redis) -> bool:
    text = str(client.execute_command("CLUSTER", "INFO"))
    slots = str(client.execute_command("CLUSTER", "SLOTS"))
    return (
        ("cluster_state:ok" in text or "'cluster_state': 'ok'" in text)
        and ("cluster_known_nodes:3" in text or "'cluster_known_nodes': '3'" in text)
        and slots.count("127.0.0.1") >= 3
    )
