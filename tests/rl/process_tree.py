"""Runs engines in processes of their own, and finds children of theirs that are left."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from running import eventually

from roost.engine.processes import keeper

PROGRAMS = Path(__file__).parent / "programs"


def those_with(word: str) -> Iterator[psutil.Process]:
    """Living processes with the word in their command line."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and any(word in part for part in process.cmdline()):
                yield process


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def keepers_of(pid: int) -> list[psutil.Process]:
    found = []
    for process in those_with(keeper.__file__):
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[4:5] == [str(pid)]:  # empty for one that has just ended
                found.append(process)
    return found


@contextlib.contextmanager
def started(*words: object, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that is killed at the end, also of a test that fails."""
    with subprocess.Popen([str(word) for word in words], **options) as process:
        try:
            yield process
        finally:
            process.kill()


class Engine:
    """A confined process, with children. All of them have the path of its notes in their command lines."""

    def __init__(self, notes: Path, name: str = "engine") -> None:
        self.notes = notes
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / f"{name}.py"), str(notes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        self.hear()
        [self.keeper] = keepers_of(self.pid)
        self._kin: set[psutil.Process] = set()

    def hear(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline() or "null")

    def ask(self, *words: str) -> Any:
        """Has the engine do something, and returns its answer."""
        self.tell(*words)
        return self.hear()

    def tell(self, *words: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def have(self, *kinds: str) -> dict[str, int]:
        """Children of these kinds run: their names and numbers."""
        for kind in kinds:
            self.ask("start", kind)
        numbers = {kind: self.noted(kind) for kind in kinds}
        self._kin.update(psutil.Process(self.pid).children(recursive=True))
        return numbers

    def noted(self, name: str) -> int:
        note = self.notes / name
        return int(eventually(lambda: note.exists() and note.read_text().strip(), 30, f"{name} runs"))

    def seen(self) -> None:
        """The keeper has looked around since."""
        before = self.keeper.num_ctx_switches().voluntary
        eventually(
            lambda: self.keeper.num_ctx_switches().voluntary >= before + 4, 30, "the keeper looks around"
        )

    def left(self) -> list[str]:
        """After its end: who is still there."""
        kin = {*those_with(str(self.notes)), *keepers_of(self.pid), *filter(lives, self._kin)}
        return [str(process) for process in kin if process.pid != self.pid] or self._somebody()

    def _somebody(self) -> list[str]:
        """Processes that are never met have inherited the engine's output all the same."""
        assert self.process.stdout
        output = self.process.stdout.fileno()
        ready = select.select([output], [], [], 0)[0]
        return [] if ready and not os.read(output, 1) else ["somebody who has its output"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            stream.close()
        for process in {*those_with(str(self.notes)), *keepers_of(self.pid), *self._kin}:
            with contextlib.suppress(psutil.Error):
                process.kill()
