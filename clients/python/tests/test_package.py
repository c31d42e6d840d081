"""A wheel and an sdist, each installed into an environment of its own, without the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from redis_seat.testing import SeatServer

from cluster import three_masters
from conftest import CLIENT


def servers() -> list[str | None]:
    """Those of the matrix, or the one that the tests run on."""
    lines = os.environ.get("SEAT_TRUST_SERVERS", "").splitlines()
    return [line.split(" ", 1)[1] for line in lines] or [None]


def call(*words: object, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(
        [str(word) for word in words],
        cwd="/",
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.package
def test_what_is_built_installs_and_works_without_the_repository(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(CLIENT, source, ignore=shutil.ignore_patterns("__pycache__"))
    # The wheel is made from the sdist.
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", source]
    call(*build)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    [sdist] = (tmp_path / "dist").glob("*.tar.gz")
    pythons = []
    for name, built in (("wheel", wheel), ("sdist", sdist)):
        venv.create(tmp_path / name, with_pip=True)
        python = tmp_path / name / "bin/python"
        call(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", built)
        pythons.append(python)
    smoke = shutil.copy(CLIENT / "tests/smoke.py", tmp_path)
    for server in servers():
        with SeatServer(server=server) as alone:
            for python in pythons:
                said = call(python, "-W", "error", smoke, REDIS_URL=alone.url)
                assert said == "0.1.0\n"
        print(f"trust: the wheel and the sdist work on {server or 'the server of the tests'}")
    with three_masters() as nodes:
        for python in pythons:
            call(python, smoke, CLUSTER_PORT=str(nodes[0].port))
