"""A driver that ends at random moments, from its first line on: its exit code, and what is left.

ROOST_MOMENTS says how many, ROOST_SEED which.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from running import Program, eventually, new_job

import roost

pytestmark = [pytest.mark.ray, pytest.mark.soak]

MOMENTS = int(os.environ.get("ROOST_MOMENTS", "25"))
SEED = int(os.environ.get("ROOST_SEED", "1"))
CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 41, signal.SIGINT: -signal.SIGINT}


@pytest.fixture(scope="module")
def standing() -> Iterator[str]:
    """A Ray that was there before."""
    with roost.embedded("1x0") as address:
        yield address


@pytest.fixture
def own_directory() -> Iterator[str]:
    """Where a program and all it starts keep their files. Unix socket paths are short."""
    made = tempfile.mkdtemp(prefix="re-")
    yield made
    shutil.rmtree(made, ignore_errors=True)


def processes_of(directory: str) -> list[int]:
    """Those that were started with it as their temporary directory."""
    found = []
    for process in psutil.process_iter(["pid", "environ", "status"]):
        given = process.info["environ"] or {}
        if (
            directory in (given.get("TMPDIR"), given.get("RAY_TMPDIR"))
            or given.get("RAY_TMPDIR", "").startswith(f"{directory}/")
        ) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.info["pid"])
    return found


@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("number", CODES, ids=lambda number: signal.Signals(number).name)
@pytest.mark.parametrize("where", ["embedded", "standing"])
def test_at_a_random_moment(
    where: str, number: signal.Signals, moment: int, own_directory: str, request: pytest.FixtureRequest
) -> None:
    delay = random.Random(f"{SEED} {where} {number} {moment}").uniform(0, 8 if where == "embedded" else 5)
    env: dict[str, str | None] = {"TMPDIR": own_directory, "RAY_ADDRESS": None, "ROOST_EMBEDDED": "1x0"}
    if where == "embedded":
        env["RAY_TMPDIR"] = own_directory
    else:
        env["RAY_ADDRESS"] = request.getfixturevalue("standing")
    program = Program("signalled", new_job("moment"), env=env)
    try:
        program.answer()
        time.sleep(delay)
        began = time.monotonic()
        program.signal(number)
        assert program.end(60) == CODES[number], f"after {delay:.2f} s:\n{program.output}"
        ended = time.monotonic() - began
        eventually(lambda: not processes_of(own_directory), 60, "no process is left")
        left = Path(own_directory)
        eventually(
            lambda: not list(left.iterdir()),
            60,
            f"no file is left; first there were {sorted(left.rglob('*'))[:20]}",
        )
        print(
            f"{where} {number.name} after {delay:.2f} s: ended in {ended:.1f} s, all gone {time.monotonic() - began:.1f} s"
        )
    finally:
        program.kill()
