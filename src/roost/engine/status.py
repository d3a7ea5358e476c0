"""The state of every process of a run, planned against actual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from roost.engine.workers.call_summary import CallSummary
from roost.placement.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """A process of a run: where it was planned, where it is, and what it does."""

    component: str
    rank: int
    # "idle", "busy", "stopped" (by a signal), "hung" (no heartbeat), "dead", "unknown" (its node does not answer),
    # "ended" (in order), or "not started"
    state: str
    planned_node: int
    node: int | None  # the node it runs on; None if that is not known
    devices: tuple[int, ...]  # as planned
    pid: int | None
    generation: int | None
    calls_in_flight: tuple[str, ...] = ()
    busy_for: float = 0.0  # seconds since the oldest call in flight began
    last_call: str = ""  # the last one that has ended, with its outcome
    # The names of the accelerators it really sees; after warning RW202, not the planned ones.
    visible: str = ""
    waits: str = ""  # what it waits for in a call: "waits for a channel" or "waits for a lock"
    group: str = ""  # the name of its worker group
    # The kind of its devices: "accelerator", "Franka", ...; empty if it holds only its node.
    hardware: str = ""
    calls: CallSummary = field(default_factory=CallSummary, repr=False)

    @property
    def is_here(self) -> bool:
        """Whether the process should be running."""
        return self.state not in ("ended", "not started")

    @property
    def is_fine(self) -> bool:
        return self.state in ("idle", "busy", "ended", "not started")

    @property
    def restarts(self) -> int:
        return self.generation or 0

    def to_dict(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "calls"}

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
        return {"format_version": 1, "processes": [one.to_dict() for one in self.processes]}

    def __str__(self) -> str:
        return "\n".join(map(str, self.processes))


def absent_status(component: str, place: Placement, state: str) -> ProcessStatus:
    """The status of a process that has ended or was not started."""
    return ProcessStatus(
        component=component,
        rank=place.rank,
        state=state,
        planned_node=place.cluster_node_rank,
        node=None,
        devices=place.hardware,
        pid=None,
        generation=None,
        hardware=place.kind if place.hardware else "",
    )


def seen_status(
    component: str,
    place: Placement,
    *,
    group: str,
    state: str,
    node: int | None,
    pid: int,
    generation: int,
    visible: str,
    calls: CallSummary,
) -> ProcessStatus:
    """The status of a started process. `state` is "running", "stopped", "hung", "dead" or "unknown"."""
    in_flight = calls.in_flight if state != "dead" else ()
    shown = ("busy" if in_flight else "idle") if state == "running" else state
    return replace(
        absent_status(component, place, shown),
        node=node,
        pid=pid,
        generation=generation,
        calls_in_flight=tuple(call.method for call in in_flight),
        busy_for=in_flight[0].seconds if in_flight else 0.0,
        last_call=calls.last_call,
        visible=visible,
        waits=calls.waits,
        group=group,
        calls=calls,
    )
