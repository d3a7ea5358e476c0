"""A program that says no address ends as a plain Python program would, and takes its embedded Ray along."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

import pytest
from remains import assert_ended, descendants
from running import Program, new_job

pytestmark = pytest.mark.ray

# Errors go to a file of their own: what a program prints is read from its output.
SPLIT = ("sh", "-c", 'errors=$1; shift; exec "$@" 2>"$errors"', "sh")


@pytest.mark.parametrize(
    ("how", "code", "last"),
    [
        ("in a call", -signal.SIGINT, "KeyboardInterrupt"),
        pytest.param("exception", 1, "LookupError: the program's own", marks=pytest.mark.slow),
        pytest.param("normal", 0, "", marks=pytest.mark.slow),
        pytest.param("exit", 3, "", marks=pytest.mark.slow),
    ],
)
def test_the_exit_code_is_the_programs_own(tmp_path: Path, how: str, code: int, last: str) -> None:
    """Pitfall: a worker's exception kills the driver."""
    errors = tmp_path / "errors"
    with tempfile.TemporaryDirectory(prefix="re-") as empty:
        env = {"RAY_ADDRESS": None, "ROOST_EMBEDDED": "1x1", "NODES": "1", "RAY_TMPDIR": empty}
        program = Program("ending", new_job("ends"), how, "0", env=env, prefix=(*SPLIT, str(errors)))
        try:
            said = program.answer(within=120)
            assert said["caught"] == "WorkerRaised[LookupError]"
            processes = descendants(said["pids"][0])
            assert {process.pid for process in processes} >= set(said["workers"])
            if how == "in a call":
                program.signal(signal.SIGINT)
            else:
                program.tell("end")
            assert program.end() == code
        finally:
            program.kill()
    text = errors.read_text()
    assert "No running Ray found; starting an embedded one (1 node x 1 accelerator).\n" in text
    assert text.count("Traceback") == bool(last)
    assert not last or text.rstrip().endswith(f"\n{last}")
    assert_ended(processes)
