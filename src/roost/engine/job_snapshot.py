"""A job at one moment, as a value: everything that shows a job (text, JSON, a page, metrics) renders this."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from roost.engine.channels.channel_values import ChannelState
from roost.engine.events import Event
from roost.engine.processes.machine import Machine
from roost.engine.status import ProcessStatus
from roost.planning.plan import Plan

LOOK_WITHIN = 5.0  # seconds in which a job should say what its processes do


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    rank: int
    host: str  # its address and name
    accelerators: int
    state: str  # "up", "silent" (its agent does not answer), or "gone"
    machine: Machine | None = None  # None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverStatus:
    """The program that launched the job."""

    pid: int
    node: int | None  # None: it runs on no node of the job
    state: str  # "running", "stopped" (by a signal), "dead", or "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatus:
    name: str
    length: int | None  # None: it does not answer
    capacity: int | None = None
    taken: int = 0  # items that processes have taken and not acknowledged
    waiting_puts: int = 0
    waiting_takes: int = 0
    put: int = 0  # items since it was made
    acknowledged: int = 0
    redelivered: int = 0
    closed: bool = False


def channel_status(name: str, state: ChannelState | None) -> ChannelStatus:
    if state is None:
        return ChannelStatus(name=name, length=None)
    return ChannelStatus(
        name=name,
        length=state.size,
        capacity=state.capacity,
        taken=sum(state.taken.values()),
        waiting_puts=state.waiting_puts,
        waiting_takes=state.waiting_takes,
        put=state.put,
        acknowledged=state.acknowledged,
        redelivered=state.redelivered,
        closed=state.closed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    job: str
    time: float  # seconds since the epoch
    state: str  # "running", "ended", or "elsewhere": it runs on another Ray than the asked one
    plans: tuple[Plan, ...] = ()  # of its processes, as they are now; the last one launched if nothing runs
    driver: DriverStatus | None = None
    nodes: tuple[NodeStatus, ...] = ()
    processes: tuple[ProcessStatus, ...] = ()  # plan by plan, component by component, in rank order
    starting: int = 0  # processes of groups that are being launched; they are not among `processes` yet
    channels: tuple[ChannelStatus, ...] = ()
    events: tuple[Event, ...] = ()  # the latest last
    silent: tuple[str, ...] = ()  # the processes that did not answer in time, in words

    @property
    def components(self) -> dict[str, list[ProcessStatus]]:
        found: dict[str, list[ProcessStatus]] = {}
        for one in self.processes:
            found.setdefault(one.component, []).append(one)
        return found

    @property
    def unwell(self) -> list[ProcessStatus]:
        """The processes that should run and do not, or whose state is unknown."""
        return [one for one in self.processes if not one.is_fine]

    def to_dict(self, most_events: int = 100) -> dict[str, Any]:
        return {
            "job": self.job,
            "time": self.time,
            "state": self.state,
            "plans": [
                {"digest": plan.digest, "job_file": plan.job_file, "components": list(plan.components)}
                for plan in self.plans
            ],
            "driver": None if self.driver is None else asdict(self.driver),
            "nodes": [asdict(one) for one in self.nodes],
            "processes": [one.to_dict() for one in self.processes],
            "starting": self.starting,
            "channels": [asdict(one) for one in self.channels],
            "events": [one.to_dict() for one in self.events[-most_events:]],
            "silent": list(self.silent),
        }
