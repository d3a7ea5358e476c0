"""A program that says no address ends as a plain Python program would, and takes its embedded Ray along."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from remains import assert_ended, descendants
from running import Program, new_job

pytestmark = pytest.mark.ray

# How a driver ends, what it does until then, and its exit code.
WAYS = {
    "normal": ("normal", 0),
    "exception": ("exception", 1),
    "exit": ("exit", 3),
    "interrupt": ("in a call", -signal.SIGINT),
}
# Errors go to a file of their own: what a program prints is read from its output.
SPLIT = ("sh", "-c", 'errors=$1; shift; exec "$@" 2>"$errors"', "sh")


@dataclass
class Driver:
    program: Program
    errors: Path


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Driver]]:
    """One for each way to end, all starting at once, where no Ray is to be found."""
    made, directory = {}, tmp_path_factory.mktemp("errors")
    with tempfile.TemporaryDirectory(prefix="re-") as empty:
        env = {"RAY_ADDRESS": None, "ROOST_EMBEDDED": "1x1", "NODES": "1", "RAY_TMPDIR": empty}
        for way, (how, _) in WAYS.items():
            errors = directory / way
            program = Program("ending", new_job(way), how, "0", env=env, prefix=(*SPLIT, str(errors)))
            made[way] = Driver(program, errors)
        yield made
        for driver in made.values():
            driver.program.kill()


@pytest.mark.parametrize("way", WAYS)
def test_the_exit_code_is_the_programs_own(drivers: dict[str, Driver], way: str) -> None:
    """Pitfall: a worker's exception kills the driver."""
    program = drivers[way].program
    said = program.answer(within=120)
    assert said["caught"] == "WorkerRaised[LookupError]"
    processes = descendants(said["pids"][0])
    assert {process.pid for process in processes} >= set(said["pids"][1:])
    if way == "interrupt":
        program.signal(signal.SIGINT)
    else:
        program.tell("end")
    assert program.end() == WAYS[way][1]
    errors = drivers[way].errors.read_text()
    assert "No running Ray found; starting an embedded one (1 node x 1 accelerator).\n" in errors
    last = {"exception": "LookupError: the program's own", "interrupt": "KeyboardInterrupt"}.get(way)
    assert errors.count("Traceback") == (last is not None)
    assert last is None or errors.rstrip().endswith(f"\n{last}")
    assert_ended(processes)
