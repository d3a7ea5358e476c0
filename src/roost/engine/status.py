"""What every process of a run does now, planned against actual."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from roost.engine.backend import ProcessFacts
from roost.engine.workers.call_log import Call
from roost.placement.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """A process of a run: where it was planned, where it is, and what it does."""

    component: str
    rank: int
    state: str  # "idle", "busy", "dead", "unknown", "ended" (in order), or "not started"
    planned_node: int
    node: int | None  # where it really is; None when that is not known
    devices: tuple[int, ...]  # as planned
    pid: int | None
    generation: int | None
    calls_in_flight: tuple[str, ...] = ()
    busy_for: float = 0.0  # seconds since the oldest call in flight began
    last_call: str = ""  # the last one that has ended, with its outcome
    visible: str = (
        ""  # the accelerators it really sees, by their names; others than planned after a warning RW202
    )
    waits: str = ""  # what it waits for in a call: "waits for a channel" or "waits for a lock"

    def __str__(self) -> str:
        doing = (
            f" in {', '.join(self.calls_in_flight)} for {self.busy_for:.1f} s" if self.calls_in_flight else ""
        )
        doing += f", {self.waits}" if self.waits else ""
        last = f", last {self.last_call}" if self.last_call else ""
        again = f", started {self.generation + 1} times" if self.generation else ""
        return f"{self.component}:{self.rank} node {self.planned_node} pid {self.pid}: {self.state}{doing}{last}{again}"


class Status(Sequence[ProcessStatus]):
    """The processes of a run, component by component, in rank order."""

    def __init__(self, processes: Sequence[ProcessStatus]) -> None:
        self.processes = tuple(processes)

    def __getitem__(self, index: Any) -> Any:
        return self.processes[index]

    def __len__(self) -> int:
        return len(self.processes)

    def of(self, component: str) -> list[ProcessStatus]:
        return [one for one in self.processes if one.component == component]

    def to_dict(self) -> dict[str, Any]:
        return {"format_version": 1, "processes": [asdict(one) for one in self.processes]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.processes))


def process_status(
    component: str, place: Placement, facts: ProcessFacts | None, absent: str = "not started"
) -> ProcessStatus:
    """`facts` is None for a process that is not there; `absent` says why."""
    calls = facts.calls if facts else ()
    state = absent if facts is None else facts.state
    unfinished = [call for call in calls if call.end is None] if state == "running" else []
    running = [call for call in unfinished if not call.is_wait]
    ended = [call for call in calls if call.end is not None and not call.is_wait]
    last = max(ended, key=_end, default=None)
    if state == "running":
        state = "busy" if running else "idle"
    return ProcessStatus(
        component=component,
        rank=place.rank,
        state=state,
        planned_node=place.cluster_node_rank,
        node=facts.node if facts else None,
        devices=place.hardware,
        pid=facts.pid if facts else None,
        generation=facts.generation if facts else None,
        calls_in_flight=tuple(call.method for call in running),
        busy_for=time.time() - running[0].start if running else 0.0,
        last_call=f"{last.method} {last.outcome}" if last else "",
        visible=facts.visible if facts else "",
        waits=next((call.method for call in unfinished if call.is_wait), ""),
    )


def _end(call: Call) -> float:
    return call.end or 0.0
