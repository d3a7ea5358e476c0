"""A driver on a Ray that was there before ends with its own exit code, and leaves nothing of its job."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from remains import assert_gone, remains
from running import Program, new_job

pytestmark = pytest.mark.ray

# The first one's call ends by itself after a minute.
WAYS = {
    "Ctrl-C": ("waits in a call", -signal.SIGINT),
    "normal": ("normal", 0),
    "exception": ("exception", 1),
    "sys.exit(3)": ("exit3", 3),
}


@pytest.fixture(scope="module")
def drivers(connected: str) -> Iterator[dict[str, tuple[str, Program]]]:
    """The job and the driver for each way to end, all starting at once, on accelerators of their own."""
    made = {}
    for number, (way, (how, _)) in enumerate(WAYS.items()):
        job = new_job("ends")
        made[way] = job, Program("job", how, job, str(number), env={"RAY_ADDRESS": connected})
    yield made
    for _, program in made.values():
        program.kill()


@pytest.mark.parametrize("way", WAYS)
def test_the_exit_code_is_its_own_and_nothing_is_left(
    drivers: dict[str, tuple[str, Program]], way: str
) -> None:
    """Pitfall: sys.exit(3) becomes exit code 0."""
    job, program = drivers[way]
    said = program.answer()
    if way == "Ctrl-C":
        assert remains(job, said["pids"], said["ports"])
        program.signal(signal.SIGINT)
    assert program.end() == WAYS[way][1], program.output
    assert ("LookupError: the program's own" in program.output) is (way == "exception")
    assert ("KeyboardInterrupt" in program.output) is (way == "Ctrl-C")
    assert_gone(job, said["pids"], said["ports"])
