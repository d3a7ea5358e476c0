"""A process that a job has started, as the job's managers and its folder record it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from roost.engine.processes.process_facts import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedProcess:
    component: str  # the name of its worker group
    rank: int
    generation: int
    node: int  # its rank in the job
    node_id: str
    host: str
    pid: int
    started: int  # clock ticks after the boot
    logs: tuple[str, ...] = ()  # the files for its errors and its output

    @property
    def key(self) -> tuple[str, int, int]:
        return self.component, self.rank, self.generation

    @property
    def name(self) -> str:
        """`actor:3`, or `actor:3+1` after one restart."""
        again = f"+{self.generation}" if self.generation else ""
        return f"{self.component}:{self.rank}{again}"

    @property
    def process(self) -> Process:
        return Process(pid=self.pid, started=self.started)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StartedProcess:
        return cls(**{**data, "logs": tuple(data["logs"])})
