"""Workers that are hard to end. Importing this costs little, since every worker process does it."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import roost


class Parent(roost.Worker):
    """Has a process of its own, as an inference engine does."""

    def family(self) -> tuple[int, int]:
        self.child = subprocess.Popen(["sleep", "600"])
        return os.getpid(), self.child.pid

    def fails(self) -> None:
        raise LookupError("in the worker")

    def never_returns(self) -> None:
        threading.Event().wait()


class NeverConstructed(roost.Worker):
    def __init__(self, notes: str) -> None:
        super().__init__()
        (Path(notes) / str(self.rank)).write_text(f"{os.getpid()} {os.environ['MASTER_PORT']}")
        threading.Event().wait()
