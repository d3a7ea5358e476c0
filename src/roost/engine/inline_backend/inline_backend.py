"""The inline twin: the same program in one process, without Ray."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from roost.engine.backend import (
    AllocationOrder,
    GroupOrder,
    Needs,
    PoolRequest,
    Position,
    Progress,
    Report,
    RunningGroup,
)
from roost.engine.channels.buffer_desk import BufferDesk, no_such_buffer
from roost.engine.channels.channel_desk import ChannelDesk
from roost.engine.cluster_options import ClusterOptions, checked_job_name, with_groups
from roost.engine.events import MOST_EVENTS, Event
from roost.engine.inline_backend.inline_channel import InlineBuffer, InlineChannel, copied
from roost.engine.inline_backend.inline_workers import InlineWorkers
from roost.engine.job_snapshot import DriverStatus, JobSnapshot, NodeStatus, channel_status
from roost.engine.kept_plans import keep_plan
from roost.engine.launch_orders import aftermath_of_launch
from roost.engine.learned_groups import LearnedGroups
from roost.engine.locks.lock_table import Decision, Device, DeviceHold, LockTable
from roost.engine.locks.node_devices import NodeDevices
from roost.engine.ports.port_lease import PortLease
from roost.engine.ports.port_shelf import PortShelf
from roost.engine.processes.process_facts import Owner, Process, this_process
from roost.engine.workers.worker_context import describe_this_process
from roost.errors import ClusterError, nearest
from roost.inventory.groups import NodeGroup
from roost.inventory.inventory import Inventory
from roost.inventory.ordering import NodeInfo
from roost.planning.plan import Plan

_current: InlineBackend | None = None
LOOPBACK = "127.0.0.1"


def current_inline() -> InlineBackend | None:
    """The inline job of this process, if it has one."""
    return _current


class InlineLocks:
    def __init__(self, table: LockTable, node: str) -> None:
        self.node, self._table = node, table

    def acquire(self, devices: Sequence[Device], timeout: float, hold_for: float | None) -> Decision:
        """Granted or refused at once: inline mode has one thread, so a wait could never end."""
        me, who = this_process(), describe_this_process()
        # All ranks run in one process; `elsewhere` tells them apart.
        owner = Owner(process=Process(pid=me.pid, started=me.started, elsewhere=who), who=who)
        now = time.monotonic()
        (decision,) = self._table.request(owner, devices, now, now, hold_for)
        return decision

    def release(self, owner: Owner, fence: int) -> None:
        self._table.release(owner, fence, time.monotonic())

    def hold_on(self, device: Device) -> tuple[DeviceHold, float] | None:
        found = self._table.hold_on(device)
        return None if found is None else (found, time.monotonic() - found.since)


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
    owner, address = True, ""

    def __init__(self, options: ClusterOptions) -> None:
        global _current
        shaped = "x" in options.shape
        inventory = Inventory.parse(options.shape) if shaped else Inventory.uniform(options.num_nodes or 1, 8)
        count = options.num_nodes or len(inventory.nodes)
        if len(inventory.nodes) < count:
            raise ClusterError(
                code="RE104", what=f"{len(inventory.nodes)} inline nodes, the job asks for {count}"
            )
        self.inventory = with_groups(inventory.limited(count), options)
        self.job = checked_job_name(options.job or "inline")
        self.master_addr, self.master_port = LOOPBACK, 29500
        self._groups: dict[str, InlineWorkers] = {}
        self._plans: dict[str, Plan] = {}  # by digest
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._learned = LearnedGroups()
        self._ports = PortShelf()
        self._lock_tables: dict[int, LockTable] = {}
        self._channels: dict[str, ChannelDesk] = {}
        self._buffers: dict[str, BufferDesk] = {}
        self._open = True
        _current = self

    @classmethod
    def attach(cls) -> InlineBackend:
        if _current is None:
            raise ClusterError(
                code="RE106", what="no job is running", remedy="start one with Cluster(num_nodes=...)"
            )
        return _current

    @property
    def node_infos(self) -> list[NodeInfo]:
        return []

    @property
    def plans(self) -> list[Plan]:
        return list(self._plans.values())

    @property
    def is_open(self) -> bool:
        return self._open

    @property
    def events(self) -> list[Event]:
        return list(self._events)

    def record(self, events: Sequence[Event]) -> None:
        self._events.extend(events)

    def snapshot(self, timeout: float) -> JobSnapshot:
        driver, nodes = DriverStatus(pid=os.getpid(), node=0, state="running"), self.inventory.nodes
        return JobSnapshot(
            job=self.job,
            time=time.time(),
            state="running" if self._open else "ended",
            plans=tuple(self._plans.values())[-1:],
            driver=driver,
            nodes=tuple(
                NodeStatus(rank=node.rank, host="inline", accelerators=node.accelerators.count, state="up")
                for node in nodes
            ),
            processes=tuple(status for group in self._groups.values() for status in group.statuses()),
            channels=tuple(channel_status(name, desk.look()) for name, desk in self._channels.items()),
            events=tuple(self._events),
        )

    def current_plan(self, plan: Plan) -> Plan:
        return plan

    def check_open(self) -> None:
        if not self._open:
            raise ClusterError(code="RE106", what=f"the cluster of job {self.job!r} was shut down")

    def learn_groups(self, groups: Mapping[str, NodeGroup]) -> list[str]:
        self.inventory, used = self._learned.learn(self.inventory, groups)
        return used

    def forget_groups(self, labels: Collection[str]) -> None:
        self.inventory, _ = self._learned.forget(self.inventory, labels)

    def reserve(self, needs: Needs) -> list[tuple[int, int]]:
        return []  # nothing is held inline

    def unreserve(self, accelerators: Sequence[tuple[int, int]]) -> None:
        pass

    def start(
        self, plan: Plan, orders: Sequence[GroupOrder], timeout: float, report: Report
    ) -> dict[str, RunningGroup]:
        total = sum(len(order.placements) for order in orders)
        master = (self.master_addr, self.master_port)
        groups = [InlineWorkers(self.job, plan.inventory, order, master, self.record) for order in orders]
        done = 0
        for group in groups:
            for rank in range(len(group.order.placements)):
                group.start_rank(rank, aftermath_of_launch(orders))
                done += 1
                report(Progress(phase="ready", done=done, total=total))
        report(Progress(phase="verified", done=total, total=total))
        self._groups.update({group.name: group for group in groups})
        keep_plan(self._plans, plan.digest, plan)
        return {group.name: group.as_running() for group in groups}

    def taken(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self._groups]

    def running_group(self, name: str) -> RunningGroup:
        if not isinstance(name, str) or name not in self._groups:
            raise ClusterError(
                code="RE116", what=f"no group {name!r} is running", remedy=nearest(name, self._groups)
            )
        return self._groups[name].as_running()

    def restarted(self, name: str) -> None:
        pass  # there is no other process to tell

    def end_group(self, name: str) -> None:
        ended = self._groups.pop(name, None)
        if ended is not None:
            ended.stop()

    def allocate(self, order: AllocationOrder) -> Any:
        raise ClusterError(
            code="RE114",
            what="inline mode has no actors to allocate",
            why="allocate returns a Ray actor handle",
            remedy="use a Worker group, which runs inline too",
        )

    def lease_ports(self, node: int, count: int, consecutive: bool, timeout: float) -> PortLease:
        owner = Owner()
        ports = self._ports.take(count, consecutive, owner)
        return PortLease(host=LOOPBACK, ports=ports, _give_back=partial(self._ports.release_owner, owner))

    def locks_on(self, node: int) -> InlineLocks:
        return InlineLocks(self._lock_tables.setdefault(node, LockTable()), str(self.inventory.nodes[node]))

    def channel(self, name: str) -> InlineChannel:
        return InlineChannel(name, self._channels.setdefault(name, ChannelDesk()))

    def data_buffer(self, name: str, source: Any, seed: int) -> InlineBuffer:
        if name not in self._buffers:
            if source is None:
                raise no_such_buffer(name)
            self._buffers[name] = BufferDesk(source, seed, copied)
        return InlineBuffer(name, self._buffers[name])

    def take_positions(self, wanted: PoolRequest) -> list[Position]:
        there = self.inventory.nodes
        everything = [
            (node, device) for node in wanted.nodes for device in range(there[node].accelerators.count)
        ]
        return [
            Position(node=node, device=device, name=str(device))
            for node, device in (everything[: wanted.count] if wanted.named is None else wanted.named)
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
