"""The README's examples run, and what they print stands in the comments below."""

from __future__ import annotations

import itertools
import re

import pytest

from redis_seat.testing import SeatServer

from conftest import CLIENT
from processes import run

BLOCKS = re.findall(r"```python\n(.*?)```", (CLIENT / "README.md").read_text(), re.DOTALL)

# What is done with the examples that only define something.
MORE = {
    "app = FastAPI(": """
from fastapi.testclient import TestClient
with TestClient(app) as http:
    place = "/licenses/acme/sessions/"
    assert http.put(place + "a").json() == {"heartbeat_interval": 120}
    denied = http.put(place + "b")
    assert denied.status_code == 429, denied
    assert denied.headers["Retry-After"] == "5"
    assert denied.json() == {"wait_queue_position": 1}
    assert http.patch(place + "a").status_code == 200
    assert http.delete(place + "a").status_code == 200
    assert http.patch(place + "a").status_code == 410
    assert http.put(place + "b").status_code == 200
""",
    'app = Celery("render"': """
assert render.apply(args=[7]).get() == "frame 7"
assert gpus.commands.count("gpus") == 0
""",
}


def printed(code: str) -> list[str]:
    """The comments below the prints that are carried out."""
    lines = [line.strip() for line in code.splitlines()]
    pairs = itertools.pairwise(lines)
    return [below[2:] for line, below in pairs if "print(" in line and below.startswith("# ")]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_readmes_examples_print_what_they_show(number: int) -> None:
    code = BLOCKS[number]
    more = "".join(text for word, text in MORE.items() if word in code)
    with SeatServer() as server:
        # Others' warnings are not this package's.
        said = run(code + more, server.url, python_options="-W default")
    assert said.splitlines() == printed(code)


def test_the_readme_has_its_examples() -> None:
    assert len(BLOCKS) >= 8
    assert sum(any(word in code for word in MORE) for code in BLOCKS) == len(MORE)
