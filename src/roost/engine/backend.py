"""The backend protocol. Ray and inline mode implement it; another system could.

The code above a backend decides. A backend reserves accelerators, starts processes, passes calls on, observes, and
ends processes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from roost.config.supervise import RestartPolicy
from roost.engine.events import Event
from roost.engine.job_snapshot import JobSnapshot
from roost.engine.locks.device_lock import Locks
from roost.engine.ports.port_lease import PortLease
from roost.engine.workers.call_log import Call
from roost.engine.workers.result import GroupResult
from roost.engine.workers.worker import GroupLauncher
from roost.inventory.groups import NodeGroup
from roost.inventory.inventory import Inventory
from roost.inventory.ordering import NodeInfo
from roost.placement.placement import Placement
from roost.planning.component_plan import ComponentPlan
from roost.planning.plan import Plan

Needs = Mapping[int, set[int]]  # accelerators by node rank


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOrder:
    """A component of a plan, its worker class, and the name of its worker group."""

    name: str
    component: ComponentPlan
    worker: GroupLauncher
    shares: tuple[float, ...] = ()  # each rank's share of its accelerators, if the plan sets one
    policy: RestartPolicy = field(default_factory=RestartPolicy)

    @property
    def placements(self) -> tuple[Placement, ...]:
        return self.component.members


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationOrder:
    """One actor of a plain class, and its placement."""

    name: str
    cls: type
    place: Placement
    # The caller's. The backend adds the visible-devices variable unless the caller sets it.
    variables: Mapping[str, str]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a launch is: `reserved`, `started`, `ready` (of all processes), or `verified`."""

    phase: str
    done: int
    total: int


Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One accelerator of a pool."""

    node: int
    device: int  # its number on the node
    name: str  # its measured name on the node
    bundle: Any = None  # (placement group, index); None inline, where nothing is reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequest:
    """The accelerators a pool needs."""

    count: int
    nodes: Sequence[int]  # in the order of the pool
    named: Sequence[tuple[int, int]] | None  # exactly these, by node and number; None: any
    timeout: float
    apart: bool = False  # each in a bundle of its own, with a CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """The place, state and calls of one process."""

    rank: int
    pid: int
    generation: int
    node: int | None  # the node it runs on; None if that is no node of the job
    state: str  # "running", "dead", or "unknown" when its node does not answer
    calls: tuple[Call, ...] = ()


class Members(Protocol):
    """The processes of one group."""

    placements: tuple[Placement, ...]  # by rank; a moved rank has its new placement
    seats: list[str]  # the node and devices of each rank, for messages
    running: bool
    handles: dict[int, Any]  # the Ray actor of each rank; empty inline

    def processes(self) -> Mapping[int, Any]:
        """What runs each rank now, for `submit`."""

    def submit(
        self,
        method: str,
        ranks: Sequence[int],
        args: Any,
        kwargs: Any,
        processes: Mapping[int, Any] | None = None,
    ) -> GroupResult:
        """Call the ranks; where processes are given, these and no others that have replaced them."""

    def restart(self, ranks: Sequence[int], timeout: float) -> None: ...

    def end(self, ranks: Sequence[int]) -> None: ...

    def observe(self, timeout: float) -> list[ProcessFacts]:
        """The facts of every process, in rank order. A restarted rank has several; the latest comes last."""

    def wait_recovered(self, timeout: float) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGroup:
    """A running worker group: its methods and its processes."""

    methods: tuple[str, ...]
    members: Members


class Backend(Protocol):
    """One job on a cluster."""

    job: str
    inventory: Inventory  # its nodes in order, and the node groups it knows
    master_addr: str
    master_port: int
    owner: bool  # whether this process is the job's driver
    address: str  # of the Ray cluster; empty inline

    @property
    def node_infos(self) -> list[NodeInfo]:
        """The facts about each node; empty inline."""

    @property
    def plans(self) -> list[Plan]:
        """The last 1,000 plans this job has launched, each once, in the order in which they were first launched."""

    @property
    def is_open(self) -> bool: ...

    @property
    def events(self) -> list[Event]:
        """The events of this job, in order, the last 10,000 of them. The driver knows those that it recorded."""

    def snapshot(self, timeout: float) -> JobSnapshot:
        """The state of the job's processes and nodes now."""

    def record(self, events: Sequence[Event]) -> None:
        """Add events to the job's history, which every process of the job can read."""

    def current_plan(self, plan: Plan) -> Plan:
        """A launched plan as it is now: processes may have moved to spare nodes."""

    def check_open(self) -> None:
        """Raise if the cluster was shut down."""

    def learn_groups(self, groups: Mapping[str, NodeGroup]) -> list[str]:
        """Add the node groups of a launch, for every process of the job. Returns labels for `forget_groups`."""

    def forget_groups(self, labels: Collection[str]) -> None:
        """A launch no longer needs these node groups. Those that no other launch uses are forgotten."""

    def reserve(self, needs: Needs) -> list[tuple[int, int]]:
        """Reserve these accelerators for the job, all or none. Returns the ones to pass to `unreserve`."""

    def unreserve(self, accelerators: Sequence[tuple[int, int]]) -> None:
        """End a launch's use of these accelerators. Gives back those that nothing else uses."""

    def start(
        self, plan: Plan, orders: Sequence[GroupOrder], timeout: float, report: Report
    ) -> Mapping[str, RunningGroup]:
        """Start every process of all orders at once, all or none, and verify where each is. Returns groups by name."""

    def running_group(self, name: str) -> RunningGroup:
        """A worker group of this job. Any process of the job may have launched it."""

    def taken(self, names: Sequence[str]) -> list[str]:
        """The names in `names` that a running group has."""

    def restarted(self, name: str) -> None:
        """Tell the job's other processes about the new processes of a group."""

    def end_group(self, name: str) -> None: ...

    def allocate(self, order: AllocationOrder) -> Any: ...

    def lease_ports(self, node: int, count: int, consecutive: bool, timeout: float) -> PortLease: ...

    def locks_on(self, node: int) -> Locks: ...

    def take_positions(self, wanted: PoolRequest) -> list[Position]:
        """Reserve accelerators for a pool: the named ones, or the first free ones of its nodes."""

    def give_back_positions(self, positions: Sequence[Position]) -> None: ...

    def shutdown(self) -> None: ...
