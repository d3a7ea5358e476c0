"""Ctrl-C and SIGTERM while a job runs: the first ends it in order, the second ends this process at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    def __init__(self) -> None:
        self.ending = False  # set when the job is being shut down: that must not be interrupted halfway
        self._received = 0  # the first signal's number

    @property
    def exit_code(self) -> int:
        """The exit code of a program that a signal ended."""
        return 128 + (self._received or signal.SIGINT)

    def handle(self, number: int, _: FrameType | None) -> None:
        if self._received:
            os._exit(128 + number)  # workers end with this process, and so does an embedded Ray
        self._received = number
        # Not through sys.stderr, which the interrupted code may be writing to.
        os.write(2, b"\nending; Ctrl-C again ends at once\n")
        if not self.ending:
            raise KeyboardInterrupt  # for SIGTERM too: Ray's own code passes only this one on unchanged


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Handles signals like this inside the `with` block."""
    made = Interrupts()
    before = {number: signal.signal(number, made.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield made
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
