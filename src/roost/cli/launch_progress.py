"""Shows how far a launch is: one line that changes on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import os
import sys

from roost.cli.ending import tell
from roost.engine.backend import Progress
from roost.errors import counted

STEPS = 4  # lines at most for the processes of a launch, where lines cannot change


class LaunchProgress:
    def __init__(self, nodes_used: int) -> None:
        self._nodes = nodes_used
        self._shown = 0  # the last step of the processes
        self._open = False  # whether the cursor stands behind a line that may still change

    def __call__(self, progress: Progress) -> None:
        if progress.phase == "reserved" and progress.total:
            accelerators = counted(progress.total, "accelerator")
            self._line(f"reserved: {accelerators} on {counted(self._nodes, 'node')}")
        elif progress.phase == "started":
            self._processes(0, progress.total)
        elif progress.phase == "ready":
            self._processes(progress.done, progress.total)
        elif progress.phase == "verified":
            self._line("verified: every process is where the plan has it")

    def _processes(self, done: int, total: int) -> None:
        text = f"processes: {done:,} of {total:,} ready"
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            tell(f"\r{text}", end="\n" if done == total else "")  # never shorter than before
            self._open = done < total
        elif (step := done * STEPS // max(1, total)) > self._shown:
            tell(text)
            self._shown = step

    def _line(self, text: str) -> None:
        self.close()
        tell(text)

    def close(self) -> None:
        """Leave the line that changes, so that other messages get their own."""
        if self._open:
            tell("")
            self._open = False
