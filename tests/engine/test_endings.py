"""A driver ends as a plain Python program would, whatever its workers did."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running import Program, new_job

pytestmark = pytest.mark.ray

WAYS = {"exit": "exit", "normal": "normal", "exception": "exception", "interrupt": "in a call"}
SPLIT = ("sh", "-c", 'errors=$1; shift; exec "$@" 2>"$errors"', "sh")


@dataclass
class Driver:
    program: Program
    errors: Path

    def end(self) -> tuple[int, str]:
        return self.program.end(), self.errors.read_text()


def start(directory: Path, env: dict[str, str | None], devices: dict[str, str]) -> dict[str, Driver]:
    """One driver for each way to end, all starting at once."""
    drivers = {}
    for way, how in WAYS.items():
        errors = directory / f"{way}.err"
        program = Program("ending", new_job(way), how, devices[way], env=env, prefix=(*SPLIT, str(errors)))
        drivers[way] = Driver(program, errors)
    return drivers


@pytest.fixture(scope="module")
def on_a_cluster(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Driver]]:
    devices = {way: str(number) for number, way in enumerate(WAYS)}
    drivers = start(tmp_path_factory.mktemp("cluster"), {"RAY_ADDRESS": address}, devices)
    yield drivers
    for driver in drivers.values():
        driver.program.kill()


@pytest.fixture(scope="module")
def on_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Driver]]:
    """No address, and no Ray to be found: each starts an embedded one."""
    with tempfile.TemporaryDirectory(prefix="re-") as empty:
        env = {"RAY_ADDRESS": None, "ROOST_EMBEDDED": "1x1", "NODES": "1", "RAY_TMPDIR": empty}
        drivers = start(tmp_path_factory.mktemp("own"), env, dict.fromkeys(WAYS, "0"))
        yield drivers
        for driver in drivers.values():
            driver.program.kill()


@pytest.fixture(params=["on_a_cluster", "on_their_own"])
def drivers(request: pytest.FixtureRequest) -> dict[str, Driver]:
    made: dict[str, Driver] = request.getfixturevalue(request.param)
    return made


def ready(driver: Driver) -> Any:
    said = driver.program.answer(within=120)
    assert said["caught"] == "WorkerRaised[LookupError]"
    return said


def test_the_end_of_the_program_is_0(drivers: dict[str, Driver]) -> None:
    ready(drivers["normal"])
    code, errors = drivers["normal"].end()
    assert code == 0
    assert "Traceback" not in errors


def test_an_exception_is_1_with_its_traceback(drivers: dict[str, Driver]) -> None:
    ready(drivers["exception"])
    code, errors = drivers["exception"].end()
    assert code == 1
    assert errors.rstrip().endswith("LookupError: the program's own")
    assert errors.count("Traceback") == 1


def test_sys_exit_is_its_own_number(drivers: dict[str, Driver]) -> None:
    """Pitfall: `sys.exit(3)` becomes exit code 0."""
    ready(drivers["exit"])
    assert drivers["exit"].end()[0] == 3


def test_an_interrupt_ends_as_in_plain_python(drivers: dict[str, Driver]) -> None:
    ready(drivers["interrupt"])
    drivers["interrupt"].program.signal(signal.SIGINT)
    code, errors = drivers["interrupt"].end()
    assert code == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
