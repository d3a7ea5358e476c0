"""A driver on a Ray that was there before ends with its own exit code, and leaves nothing of its job."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from remains import assert_gone, remains
from running import Program, new_job

pytestmark = pytest.mark.ray


@pytest.mark.parametrize(
    ("how", "code"),
    [("normal", 0), ("exception", 1), ("exit3", 3), ("waits in a call", -signal.SIGINT)],
    ids=["normal", "exception", "sys.exit(3)", "Ctrl-C"],
)
def test_the_exit_code_is_its_own_and_nothing_is_left(
    connected: str, run: Callable[..., Program], how: str, code: int
) -> None:
    """Pitfall: sys.exit(3) becomes exit code 0."""
    job = new_job("ends")
    program = run("job", how, job)
    said = program.answer()
    if how == "waits in a call":
        assert remains(job, said["pids"], said["ports"])
        program.signal(signal.SIGINT)
    assert program.end() == code, program.output
    assert ("LookupError: the program's own" in program.output) is (how == "exception")
    assert ("KeyboardInterrupt" in program.output) is (how == "waits in a call")
    assert_gone(job, said["pids"], said["ports"])
