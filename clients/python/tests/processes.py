"""Programs of a test in a Python of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PREAMBLE = """
import os, sys, time
import redis
from redis_seat import SeatCommands, SeatLost, SeatPool

URL, KEY = os.environ["REDIS_URL"], os.environ["KEY"]
boss = SeatCommands(redis.Redis.from_url(URL, socket_timeout=5))
"""


def environment(url: str, key: str = "", **more: str) -> dict[str, str]:
    source = str(Path(__file__).parent.parent / "src")
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "REDIS_URL": url, "KEY": key, "PYTHONPATH": path, **more}


def run(program: str, url: str, key: str = "", *, timeout: float = 60, **more: str) -> str:
    """What the program prints. It must end well, and warn of nothing."""
    words = [sys.executable, "-W", "error", "-c", program]
    # Where a test says so.
    words[1:3] = more.pop("python_options", "-W error").split()
    result: Any = subprocess.run(
        words, env=environment(url, key, **more), capture_output=True, text=True, timeout=timeout
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return str(result.stdout)
