"""Workers that are hard to end. Importing this costs little, since every worker process does it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import roost


def children() -> list[int]:
    """Starts some: a plain one, one in a session of its own, and daemons, of which one has lost its environment."""
    words = ["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!"]
    daemons = [int(subprocess.check_output(words, env=env)) for env in (None, {})]
    return [
        subprocess.Popen(["sleep", "600"]).pid,
        subprocess.Popen(["sleep", "600"], start_new_session=True).pid,
        *daemons,
    ]


class Parent(roost.Worker):
    """Has processes of its own, as an environment with a simulator does."""

    def family(self) -> list[int]:
        return [os.getpid(), *children()]

    def killed(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def fails(self) -> None:
        raise LookupError("in the worker")

    def never_returns(self) -> None:
        threading.Event().wait()


class NeverConstructed(roost.Worker):
    def __init__(self, notes: str) -> None:
        super().__init__()
        own = (os.environ["MASTER_PORT"], os.getpid(), *children())
        (Path(notes) / str(self.rank)).write_text(" ".join(map(str, own)))
        threading.Event().wait()
