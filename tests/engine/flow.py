"""Workers that pass values to each other, and note what they ran."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import roost


class Source(roost.Worker):
    def make(self, size: int = 1) -> dict[str, Any]:
        return {"from": self.rank, "data": b"x" * size}

    def number(self) -> int:
        return 10 * self.rank

    def fails(self, *ranks: int) -> int:
        if self.rank in ranks:
            raise KeyError(f"nothing at {self.rank}")
        return self.rank

    def dies(self, *ranks: int) -> int:
        if self.rank in ranks:
            os._exit(7)
        return self.rank

    def pid(self) -> int:
        return os.getpid()

    def title(self) -> str:
        """What `ps` shows of the process."""
        return Path(f"/proc/{os.getpid()}/cmdline").read_bytes().split(b"\0")[0].decode()

    def blocks(self, gate: str) -> None:
        while not Path(gate).exists():
            threading.Event().wait(0.01)


class Sink(roost.Worker):
    def __init__(self, note: str = "") -> None:
        super().__init__()
        self.note, self.seen = note, list[Any]()

    def take(self, value: Any, *more: Any, **named: Any) -> Any:
        self.seen.append(value)
        return (value, *more, named) if more or named else value

    def how_many(self) -> int:
        return len(self.seen)

    def pid(self) -> int:
        return os.getpid()


class Refuses(roost.Worker):
    def __init__(self, failing: int) -> None:
        super().__init__()
        if self.rank == failing:
            raise RuntimeError("no such model")
