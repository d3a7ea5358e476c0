"""A driver on a Ray that was there before ends with its own exit code, and leaves nothing of its job."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from remains import assert_gone, remains
from running import Program, eventually, new_job

from roost.engine.connection.signals import held_signals

pytestmark = pytest.mark.ray


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("waits in a call", -signal.SIGINT),  # its call ends by itself after a minute
        pytest.param("exit3", 3, marks=pytest.mark.slow),
        pytest.param("normal", 0, marks=pytest.mark.slow),
        pytest.param("exception", 1, marks=pytest.mark.slow),
    ],
)
def test_the_exit_code_is_its_own_and_nothing_is_left(
    run: Callable[..., Program], connected: str, how: str, code: int
) -> None:
    """Pitfall: sys.exit(3) becomes exit code 0."""
    job = new_job("ends")
    program = run("job", how, job, "1", "0")
    said = program.answer()
    if how == "waits in a call":
        assert remains(job, said["pids"], said["ports"])
        program.signal(signal.SIGINT)
    assert program.end() == code, program.output
    assert ("LookupError: the program's own" in program.output) is (how == "exception")
    assert ("KeyboardInterrupt" in program.output) is (how == "waits in a call")
    assert_gone(job, said["pids"], said["ports"])


def test_a_signal_during_a_long_import_waits_for_its_end() -> None:
    """In some steps of an import Python ignores what a handler raises."""
    raised: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: raised.append(number))
    try:
        with held_signals(signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), signal.SIGTERM)
            assert not raised
        eventually(lambda: raised, 30, "the handler ran")  # another thread may have been sent the signal
        assert raised == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
