"""The inline twin: the same program in one process, without Ray."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from roost.engine.backend import GroupOrder, Needs, Position, Progress, Report, RunningGroup
from roost.engine.cluster_options import ClusterOptions, with_groups
from roost.engine.inline_backend.inline_locks import InlineLocks
from roost.engine.inline_backend.inline_workers import InlineWorkers
from roost.engine.locks.lock_table import LockTable
from roost.engine.locks.node_devices import NodeDevices
from roost.engine.ports.port_lease import PortLease
from roost.engine.ports.port_shelf import PortShelf
from roost.engine.processes.owner import Owner
from roost.errors import ClusterError, Finding, nearest
from roost.inventory.groups import NodeGroup
from roost.inventory.inventory import Inventory
from roost.inventory.ordering import NodeInfo
from roost.planning.plan import Plan

_current: InlineBackend | None = None
LOOPBACK = "127.0.0.1"


def current_inline() -> InlineBackend | None:
    """The inline job of this process, if it has one."""
    return _current


@dataclass(frozen=True, slots=True)
class InlineNode:
    """A node as the ranks on it see it."""

    backend: InlineBackend
    rank: int

    def lease_ports(self, count: int, consecutive: bool, timeout: float) -> PortLease:
        return self.backend.lease_ports(self.rank, count, consecutive, timeout)

    def locks(self) -> InlineLocks:
        return self.backend.locks_on(self.rank)

    def devices(self) -> NodeDevices:
        inventory = self.backend.inventory
        return NodeDevices.of(self.backend.job, inventory.nodes[self.rank], inventory.groups)


class InlineBackend:
    owner = True

    def __init__(self, options: ClusterOptions) -> None:
        global _current
        shaped = "x" in options.shape
        inventory = Inventory.parse(options.shape) if shaped else Inventory.uniform(options.num_nodes or 1, 8)
        count = options.num_nodes or len(inventory.nodes)
        if len(inventory.nodes) < count:
            raise ClusterError(
                Finding(code="RE104", what=f"{len(inventory.nodes)} inline nodes, the job asks for {count}")
            )
        self.inventory = with_groups(inventory.limited(count), options)
        self.job = options.job or "inline"
        self.master_addr, self.master_port = LOOPBACK, 29500
        self._groups: dict[str, InlineWorkers] = {}
        self._plans: list[Plan] = []
        self._ports = PortShelf()
        self._lock_tables: dict[int, LockTable] = {}
        self._open = True
        _current = self

    @classmethod
    def attach(cls) -> InlineBackend:
        if _current is None:
            raise ClusterError(
                Finding(
                    code="RE106", what="no job is running", remedy="start one with Cluster(num_nodes=...)"
                )
            )
        return _current

    @property
    def node_infos(self) -> list[NodeInfo]:
        return []

    @property
    def plans(self) -> list[Plan]:
        return list(self._plans)

    def check_open(self) -> None:
        if not self._open:
            raise ClusterError(Finding(code="RE106", what=f"the cluster of job {self.job!r} was shut down"))

    def learn_groups(self, groups: Mapping[str, NodeGroup]) -> None:
        self.inventory = self.inventory.joined(groups)

    def forget_groups(self, labels: Collection[str]) -> None:
        self.inventory = self.inventory.without(labels)

    def reserve(self, needs: Needs) -> list[tuple[int, int]]:
        return []  # nothing is held inline

    def unreserve(self, accelerators: Sequence[tuple[int, int]]) -> None:
        pass

    def start(self, plan: Plan, orders: Sequence[GroupOrder], timeout: float, report: Report) -> None:
        total = sum(len(order.placements) for order in orders)
        master = (self.master_addr, self.master_port)
        groups = [InlineWorkers(self.job, plan.inventory, order, master) for order in orders]
        done = 0
        for group in groups:
            for rank in range(len(group.order.placements)):
                group.start_rank(rank)
                done += 1
                report(Progress(phase="ready", done=done, total=total))
        report(Progress(phase="verified", done=total, total=total))
        self._groups.update({group.name: group for group in groups})
        self._plans.append(plan)

    def taken(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self._groups]

    def running_group(self, name: str) -> RunningGroup:
        if not isinstance(name, str) or name not in self._groups:
            raise ClusterError(
                Finding(
                    code="RE116", what=f"no group {name!r} is running", remedy=nearest(name, self._groups)
                )
            )
        group = self._groups[name]
        return RunningGroup(
            placements=group.order.placements, methods=tuple(group.order.worker.methods), members=group
        )

    def restarted(self, name: str) -> None:
        pass  # there is no other process to tell

    def end_group(self, name: str) -> None:
        ended = self._groups.pop(name, None)
        if ended is not None:
            ended.stop()

    def allocate(self, *_: Any) -> Any:
        raise ClusterError(
            Finding(
                code="RE114",
                what="inline mode has no actors to allocate",
                why="allocate returns a Ray actor handle",
                remedy="use a Worker group, which runs inline too",
            )
        )

    def lease_ports(self, node: int, count: int, consecutive: bool, timeout: float) -> PortLease:
        owner = Owner()
        ports = self._ports.take(count, consecutive, owner)
        return PortLease(host=LOOPBACK, ports=ports, _give_back=partial(self._ports.release_owner, owner))

    def locks_on(self, node: int) -> InlineLocks:
        return InlineLocks(self._lock_tables.setdefault(node, LockTable()), str(self.inventory.nodes[node]))

    def own_node(self, node: int) -> InlineNode:
        return InlineNode(self, node)

    def take_positions(
        self, count: int, nodes: Sequence[int], wanted: Sequence[tuple[int, int]] | None, timeout: float
    ) -> list[Position]:
        there = self.inventory.nodes
        everything = [(node, device) for node in nodes for device in range(there[node].accelerators.count)]
        return [
            Position(node=node, device=device, name=str(device))
            for node, device in (everything[:count] if wanted is None else wanted)
        ]

    def give_back_positions(self, positions: Sequence[Position]) -> None:
        pass  # nothing is held inline

    def shutdown(self) -> None:
        global _current
        if self._open:
            self._open = False
            for name in list(self._groups):
                self.end_group(name)
            self._ports.close()
            if _current is self:
                _current = None
