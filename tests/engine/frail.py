"""Workers that fail in many ways. Importing this costs little, since every worker process does it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import roost
from roost.engine.processes.process_facts import raylet_pid


class Frail(roost.Worker):
    def __init__(self, fails_again: str = "") -> None:
        super().__init__()
        self.restarted: list[int] = []
        if fails_again and self._context.generation:
            raise RuntimeError(fails_again)

    def on_restart(self, generation: int) -> None:
        self.restarted.append(generation)

    def pid(self) -> int:
        return os.getpid()

    def story(self) -> tuple[int, int, list[int]]:
        return self.rank, self._context.generation, self.restarted

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def blocks(self) -> None:
        threading.Event().wait()

    def counts(self, file: str) -> None:
        """Notes that it ran, then blocks."""
        with Path(file).open("a") as notes:
            notes.write(f"{self.rank}\n")
        threading.Event().wait()

    def holds_the_interpreter(self) -> None:
        ctypes.PyDLL(None).sleep(600)  # a C call that does not give the interpreter to other threads

    def exits(self, code: int) -> None:
        sys.exit(code)

    def interrupts(self) -> None:
        raise KeyboardInterrupt

    def says_and_dies(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
        os._exit(7)

    def fills_memory(self, size: int) -> None:
        """A piece at a time, so that it is noticed before the machine is full."""
        held = []
        for _ in range(0, size, 2**26):
            held.append(b"x" * 2**26)
            time.sleep(0.02)
        threading.Event().wait()

    def forks_and_returns(self) -> str:
        return "child" if os.fork() == 0 else "parent"

    def raises_at_length(self, size: int) -> None:
        raise ValueError("x" * size)

    def raises_from(self, cause: str, text: str) -> None:
        raise ValueError(text) from LookupError(cause)

    def raylet(self) -> int:
        return raylet_pid()


class HeldBack(Frail):
    """Its first restart never comes to an end."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        if self._context.generation == 1:
            (Path(folder) / "held back").touch()
            threading.Event().wait()


class FrailAsync(Frail):
    """Any `async def` makes Ray run all calls in an event loop."""

    async def later(self) -> str:
        return "later"

    async def exits_in_a_task(self, code: int) -> None:
        async def exits() -> None:
            sys.exit(code)

        await asyncio.create_task(exits())


class Listens(roost.Worker):
    """Listens on the group's port, after somebody else had time to steal it."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        (Path(folder) / "port").write_text(os.environ["MASTER_PORT"])
        deadline = time.monotonic() + 60
        while not (Path(folder) / "stolen").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        self._server = socket.create_server(("", int(os.environ["MASTER_PORT"])))

    def port(self) -> int:
        return int(os.environ["MASTER_PORT"])


class ExitsWhileStarting(roost.Worker):
    def __init__(self) -> None:
        super().__init__()
        sys.exit(9)

    async def later(self) -> Any: ...
