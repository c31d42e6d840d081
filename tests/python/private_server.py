"""Leads clients that name port 6379 of localhost to the server at PRIVATE_PORT."""
import os

import redis.connection

PORT = int(os.environ["PRIVATE_PORT"])
connect = redis.connection.Connection.__init__


def to_private_server(self, host="localhost", port=6379, **others):
    assert (host, port) == ("localhost", 6379), f"a client of {host}:{port}"
    connect(self, host="127.0.0.1", port=PORT, **others)


redis.connection.Connection.__init__ = to_private_server
