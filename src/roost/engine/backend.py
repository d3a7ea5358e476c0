"""What stands behind a cluster: few verbs, so that another system than Ray could offer them.

Everything above decides and describes; a backend reserves, starts, passes calls on, looks, and ends.
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
    """A component of a plan, and what to run as it under which name."""

    name: str
    component: ComponentPlan
    worker: GroupLauncher
    shares: tuple[float, ...] = ()  # what each rank is charged of its accelerators, where the plan says so
    policy: RestartPolicy = field(default_factory=RestartPolicy)

    @property
    def placements(self) -> tuple[Placement, ...]:
        return self.component.members


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationOrder:
    """One actor of a plain class, and where it goes."""

    name: str
    cls: type
    place: Placement
    variables: Mapping[
        str, str
    ]  # the caller's; the accelerator's own variable is added unless it is among them
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
    name: str  # what it is called there, as it was measured
    bundle: Any = None  # (placement group, index); None where nothing is reserved, as inline


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
    """What is known of a running process, and its calls."""

    rank: int
    pid: int
    generation: int
    node: int | None  # where it really is; None when that is no node of the job
    state: str  # "running", "dead", or "unknown" when its node does not answer
    calls: tuple[Call, ...] = ()
    visible: str = ""  # its visible-devices variable, as it was measured when it started


class Members(Protocol):
    """The processes of one group."""

    placements: tuple[Placement, ...]  # by rank; those of ranks that were moved are the new ones
    seats: list[str]  # where each rank sits, for messages
    running: bool
    handles: dict[int, Any]  # the actor of each rank, where there are actors

    def submit(self, method: str, ranks: Sequence[int], args: Any, kwargs: Any) -> GroupResult: ...

    def restart(self, ranks: Sequence[int], timeout: float) -> None: ...

    def end(self, ranks: Sequence[int]) -> None: ...

    def observe(self, timeout: float) -> list[ProcessFacts]:
        """What is known of every process, in rank order; of a rank that was restarted, the latest comes last."""

    def wait_recovered(self, timeout: float) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGroup:
    """A group of the job, as any of its processes can find it."""

    methods: tuple[str, ...]
    members: Members


class Backend(Protocol):
    """One job on a cluster."""

    job: str
    inventory: Inventory  # its nodes in order, and the node groups it knows
    master_addr: str
    master_port: int
    owner: bool  # whether this process is the job's driver
    address: str  # of the system behind it; empty where there is none

    @property
    def node_infos(self) -> list[NodeInfo]:
        """What was found out about each node; inline there is nothing to find out."""

    @property
    def plans(self) -> list[Plan]:
        """The last 1,000 plans this job has launched, each once, in the order in which they were first launched."""

    @property
    def is_open(self) -> bool: ...

    @property
    def events(self) -> list[Event]:
        """What happened in this job, in order, the last 10,000 events. The driver knows those that it recorded."""

    def snapshot(self, timeout: float) -> JobSnapshot:
        """What the job's processes do now, and how its nodes are."""

    def record(self, events: Sequence[Event]) -> None:
        """Keep events, for every process of the job."""

    def current_plan(self, plan: Plan) -> Plan:
        """The plan that a launched plan has become: processes may have moved."""

    def check_open(self) -> None:
        """Refuse what is asked of a cluster that was shut down."""

    def learn_groups(self, groups: Mapping[str, NodeGroup]) -> list[str]:
        """Know the node groups of a launch, in every process of the job. Returns labels for `forget_groups`."""

    def forget_groups(self, labels: Collection[str]) -> None:
        """A launch no longer needs these node groups. Those that no other launch uses are forgotten."""

    def reserve(self, needs: Needs) -> list[tuple[int, int]]:
        """Hold these accelerators for the job, all or none. Returns them, for `unreserve`."""

    def unreserve(self, accelerators: Sequence[tuple[int, int]]) -> None:
        """A launch no longer needs these accelerators. Those that nothing else uses are given back."""

    def start(
        self, plan: Plan, orders: Sequence[GroupOrder], timeout: float, report: Report
    ) -> Mapping[str, RunningGroup]:
        """Start every process of all orders at once, all or none, and verify where each is. Returns groups by name."""

    def running_group(self, name: str) -> RunningGroup:
        """A group of this job, whichever of its processes launched it."""

    def taken(self, names: Sequence[str]) -> list[str]:
        """Those of the names under which a group is running."""

    def restarted(self, name: str) -> None:
        """Let the job's other processes know the new processes of a group."""

    def end_group(self, name: str) -> None: ...

    def allocate(self, order: AllocationOrder) -> Any: ...

    def lease_ports(self, node: int, count: int, consecutive: bool, timeout: float) -> PortLease: ...

    def locks_on(self, node: int) -> Locks: ...

    def take_positions(self, wanted: PoolRequest) -> list[Position]:
        """Hold accelerators for a pool: the named ones, or the first free ones of these nodes."""

    def give_back_positions(self, positions: Sequence[Position]) -> None: ...

    def shutdown(self) -> None: ...
