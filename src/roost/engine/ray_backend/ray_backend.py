"""A job on Ray."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ray

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
from roost.engine.cluster_options import ClusterOptions, checked_job_name, with_groups
from roost.engine.connection.actors import answer, find_actor, job_namespace
from roost.engine.connection.cluster_watch import (
    check_cluster,
    cluster_is_gone,
    forget_job,
    job_is_ended,
    spare_main,
)
from roost.engine.connection.discovery import LiveNode, choose, examine, nodes_to_ask, wait_for_nodes
from roost.engine.connection.ray_connection import connect
from roost.engine.events import Event
from roost.engine.job.agent_grants import AgentLocks, lease_from
from roost.engine.job.agents import agent_of, start_agents
from roost.engine.job.job_reader import JobReader
from roost.engine.job.managers import (
    MANAGERS,
    CollectiveManager,
    Manager,
    NodeManager,
    WorkerManager,
    current_job,
    is_running,
)
from roost.engine.job.open_jobs import job_closed, job_opened
from roost.engine.job.ray_channel import leave_channels
from roost.engine.job.take_down_order import check_order, follow_run, forget_run, obey
from roost.engine.job_snapshot import JobSnapshot
from roost.engine.ports.port_lease import PortLease
from roost.engine.processes.process_facts import Owner, this_process
from roost.engine.ray_backend.allocation import start_allocated
from roost.engine.ray_backend.job_watch import JobWatch
from roost.engine.ray_backend.ray_workers import RayWorkers
from roost.engine.ray_backend.starting import GroupStart, Site, gathered
from roost.engine.reservation.reservation import Reservation
from roost.errors import ClusterError, ReservationError, RoostError, counted, nearest
from roost.inventory.groups import NodeGroup
from roost.inventory.inventory import Inventory
from roost.inventory.ordering import NodeInfo
from roost.placement.placement import Placement
from roost.planning.plan import Plan


class RayBackend:
    """This process's side of a job: `create` in its driver, `attach` in every other process."""

    def __init__(self, job: str, connection: Any, owner: bool) -> None:
        self.job, self.owner = job, owner
        self._connection, self.address = connection, connection.address
        self._groups: dict[str, tuple[GroupOrder, RayWorkers]] = {}  # launched by this process
        self._starting: list[RayWorkers] = []
        self._managers: dict[type[Manager], Any] = {}
        self._agents: dict[str, Any] = {}
        self._allocated: list[Any] = []
        self._uses: Counter[tuple[int, int]] = (
            Counter()
        )  # how many launches of this process use an accelerator
        self._counting = threading.Lock()
        self._watch: JobWatch | None = None  # from the first launch on
        self._reader = JobReader(job)
        self._events: list[Event] = []  # that this process recorded
        self._became: dict[str, Plan] = {}  # launched plans whose processes have moved, by digest
        self._moved_to: dict[str, list[tuple[int, int]]] = {}  # accelerators that groups have moved to
        self._pooled: dict[tuple[int, int], bool] = {}  # accelerators in pools, and whether a pool took them
        self._open = True
        self.live: list[LiveNode] = []
        self.inventory = Inventory(nodes=())
        self.master_addr, self.master_port = "", 0
        self.reservation = Reservation(job, self.live)
        job_opened(job, driver=owner)

    # -- the driver's way in -------------------------------------------------------------------------------------

    @classmethod
    def create(cls, options: ClusterOptions) -> RayBackend:
        job = checked_job_name(options.job or os.environ.get("ROOST_JOB") or f"job-{secrets.token_hex(3)}")
        connection = connect(options.address, options.num_nodes)
        backend = cls(job, connection, owner=True)
        try:
            backend._create(options)
        except BaseException:
            backend.shutdown()
            raise
        return backend

    def _create(self, options: ClusterOptions) -> None:
        if is_running(self.job):
            raise ClusterError(
                code="RE115",
                what=f"a job {self.job!r} is already running on this cluster",
                remedy="choose another name: Cluster(..., job=...)",
            )
        deadline = time.monotonic() + options.timeout
        present = wait_for_nodes(options.num_nodes, self._connection.address, options.timeout)
        nodes = nodes_to_ask(present, options.num_nodes)
        self._agents = start_agents(nodes, job_namespace(self.job))
        found = examine(nodes, self._agents, max(1.0, deadline - time.monotonic()))
        self._settle(choose(found, options.num_nodes, len(present)), options)

    def _settle(self, live: list[LiveNode], options: ClusterOptions) -> None:
        self.live = live
        chosen = {node.node_id for node in live}
        for node_id in [node_id for node_id in self._agents if node_id not in chosen]:
            ray.kill(self._agents.pop(node_id))
        nodes = tuple(node.facts.as_node(rank) for rank, node in enumerate(live))
        self.inventory = with_groups(Inventory(nodes=nodes), options)
        self.master_addr = live[0].facts.ip
        self.master_port = answer(live[0].agent.lease_ports.remote(1), "leasing the master port")[0]
        self.reservation = Reservation(self.job, live, whole_nodes=options.whole_nodes)
        # After the agents have answered, since their processes would otherwise start in competition with these.
        self._managers = {manager: manager.start(live[0].node_id, self.job) for manager in MANAGERS}
        layout = {
            "nodes": nodes,
            "facts": [node.facts for node in live],
            # With their values: they stay between our processes, and an attached one launches with them too.
            "groups": dict(self.inventory.groups),
            "master_addr": self.master_addr,
            "master_port": self.master_port,
            "driver": this_process(),
            "driver_node": ray.get_runtime_context().get_node_id(),
            "run": self._new_run(),
        }
        self._managers[WorkerManager].open_history.remote(self.job, layout["run"])
        # Not waited for: the manager answers other processes once it knows.
        self._managers[NodeManager].set_layout.remote(layout)
        asked = self._managers[NodeManager].wait_taken_down.remote()
        asked.future().add_done_callback(self._told_to_end)

    def _new_run(self) -> dict[str, Any]:
        """What tells this run of the job from others of its name, and where its driver is."""
        me, runtime = this_process(), ray.get_runtime_context()
        run = {"token": secrets.token_hex(8), "time": time.time(), "address": self.address}
        driver = {"pid": me.pid, "started": me.started, "node_id": runtime.get_node_id()}
        follow_run(self.job, run["token"])
        return {**run, "driver": driver, "host": socket.gethostname()}

    def _told_to_end(self, answer: Any) -> None:
        """Called in a thread of Ray when the job is taken down, and when its manager is gone."""
        if not self._open:
            return
        if answer.exception() is None:
            obey(self.job, answer.result())
            if self._watch is not None:
                self._watch.closing()
        else:  # in a thread: the question waits for the head
            threading.Thread(target=self._look_for_order, name="roost-order", daemon=True).start()

    def _look_for_order(self) -> None:
        with contextlib.suppress(RoostError):
            check_order(self.job)

    # -- the way in for every other process ------------------------------------------------------------------------

    @classmethod
    def attach(cls, address: str | None, job: str | None) -> RayBackend:
        connection = connect(address, None, may_start=False)
        try:
            name = job or current_job()
            manager = NodeManager.get_proxy(name)
            layout = manager.get_layout()
            backend = cls(name, connection, owner=False)
            backend._managers = {one: find_actor(one.NAME, name) for one in MANAGERS}
            backend.live = [LiveNode(facts, agent_of(name, facts.node_id)) for facts in layout["facts"]]
            backend.inventory = Inventory(nodes=tuple(layout["nodes"]), groups=layout["groups"])
            backend.master_addr, backend.master_port = layout["master_addr"], layout["master_port"]
            follow_run(name, layout["run"]["token"])
            backend.reservation = Reservation(name, backend.live, manager.get_held(), attached=True)
        except BaseException:
            connection.close()
            raise
        return backend

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def node_infos(self) -> list[NodeInfo]:
        return [node.facts for node in self.live]

    @property
    def plans(self) -> list[Plan]:
        self.check_open()
        return [pickle.loads(plan) for plan in NodeManager.get_proxy(self.job).get_plans()]

    @property
    def is_open(self) -> bool:
        return self._open and ray.is_initialized() and not cluster_is_gone() and not job_is_ended(self.job)

    def check_open(self) -> None:
        check_cluster(self.job)
        if not self.is_open:
            raise ClusterError(code="RE106", what=f"the cluster of job {self.job!r} was shut down")

    def learn_groups(self, groups: Mapping[str, NodeGroup]) -> None:
        self.inventory = self.inventory.joined(groups)
        self._managers[NodeManager].add_groups.remote(dict(groups))

    def forget_groups(self, labels: Collection[str]) -> None:
        self.inventory = self.inventory.without(labels)
        self._managers[NodeManager].remove_groups.remote(list(labels))

    # -- groups ----------------------------------------------------------------------------------------------------

    def reserve(self, needs: Needs) -> list[tuple[int, int]]:
        check_cluster(self.job)
        self.reservation.ensure(needs)
        keys = [(node, device) for node, devices in needs.items() for device in devices]
        with self._counting:
            self._uses.update(keys)
        return keys

    def unreserve(self, accelerators: Sequence[tuple[int, int]]) -> None:
        if not self.is_open:
            return
        with self._counting:
            self._uses.subtract(accelerators)
            unused = {key for key in accelerators if self._uses[key] <= 0 and key not in self._pooled}
        if unused:  # groups that other processes of the job have launched may sit there too
            self.reservation.give_back(unused - self._used_by_groups())

    def _used_by_groups(self) -> set[tuple[int, int]]:
        try:
            groups = [
                group["placements"] for group in WorkerManager.get_proxy(self.job).list_groups().values()
            ]
        except ClusterError:  # the manager was killed; this process still knows its own groups
            check_cluster()
            groups = [order.placements for order, _ in self._groups.values()]
        return {key for placements in groups for key in _accelerators(placements)}

    def start(self, plan: Plan, orders: Sequence[GroupOrder], timeout: float, report: Report) -> None:
        site = Site(job=self.job, live=self.live, reservation=self.reservation)
        leaders = [self.live[order.placements[0].cluster_node_rank] for order in orders]
        owner = Owner(who=f"job {self.job!r}")
        try:
            # Before any rank starts, so that none has to wait for rank 0 to say where to meet.
            leases = [leader.agent.lease_ports.remote(1, False, owner) for leader in leaders]
            ports = [leased[0] for leased in answer(leases, "leasing ports for the groups")]
        except BaseException:
            for leader in leaders:
                leader.agent.release_lease.remote(owner)
            raise
        groups: list[RayWorkers] = []
        try:
            for order, leader, port in zip(orders, leaders, ports, strict=True):
                start = GroupStart(
                    site=site,
                    inventory=plan.inventory,
                    order=order,
                    master_addr=leader.facts.ip,
                    master_port=port,
                    history=self._managers[WorkerManager],
                    plan=plan.digest,
                )
                groups.append(RayWorkers(self.job, order.name, order.placements, self.inventory.nodes, start))
            self._starting += groups
            begun = {
                ref: started
                for group in groups
                for ref, started in group.begin(range(len(group.placements))).items()
            }
            report(Progress(phase="started", done=len(begun), total=len(begun)))
            aftermath = (
                "the whole group was taken down"
                if len(orders) == 1
                else "all that was started with it was taken down"
            )
            reports = gathered(begun, timeout, aftermath, report)
            for group in groups:
                group.started(dict(group.handles), reports[id(group.start)])
            self._register(plan, list(zip(orders, groups, strict=True)))
        except BaseException:
            for group in groups:
                group.stop()
            raise
        finally:
            self._starting = [group for group in self._starting if group not in groups]
        for order, group in zip(orders, groups, strict=True):
            self._groups[order.name] = (order, group)
            group.watch = self._watching()
        self._watching().cover(plan, orders)

    def _watching(self) -> JobWatch:
        if self._watch is None:
            self._watch = JobWatch(self, self._groups)
        return self._watch

    def relocated(self, before: Plan, plan: Plan, orders: Mapping[str, GroupOrder]) -> None:
        """Reserve what moved processes need, and let everyone know the new plan."""
        new = {
            name: _accelerators(order.placements) - _accelerators(self._groups[name][0].placements)
            for name, order in orders.items()
        }
        needs: dict[int, set[int]] = {}
        for node, device in set().union(*new.values()):
            needs.setdefault(node, set()).add(device)
        if needs:
            check_cluster()
            self.reservation.ensure(needs)
        with self._counting:
            for name, keys in new.items():
                self._uses.update(keys)
                self._moved_to.setdefault(name, []).extend(keys)
        for name, order in orders.items():
            old, group = self._groups[name]
            if order.placements[0].cluster_node_rank != old.placements[0].cluster_node_rank:
                assert group.start is not None
                group.start.lease_again()
            self._groups[name] = (order, group)
        self._became = {
            digest: plan if one.digest == before.digest else one for digest, one in self._became.items()
        } | {before.digest: plan}
        self._managers[NodeManager].add_plan.remote(plan.digest, pickle.dumps(plan), before.digest)

    def record(self, events: Sequence[Event]) -> None:
        self._events.extend(events)
        if self._open and ray.is_initialized() and not cluster_is_gone():
            self._managers[WorkerManager].record.remote(list(events))

    @property
    def events(self) -> list[Event]:
        if self.owner or not self._open:
            return list(self._events)
        return WorkerManager.get_proxy(self.job).get_events()

    def snapshot(self, timeout: float) -> JobSnapshot:
        self.check_open()
        return self._reader.read(timeout)

    def current_plan(self, plan: Plan) -> Plan:
        return self._became.get(plan.digest, plan)

    def _register(self, plan: Plan | None, groups: Sequence[tuple[GroupOrder, RayWorkers]]) -> None:
        """Let the job's other processes find the groups, and the plan they come from."""
        collective, workers = self._managers[CollectiveManager], self._managers[WorkerManager]
        told = [
            workers.register_groups.remote({order.name: group.description(order) for order, group in groups})
        ]
        for order, group in groups:
            assert group.start is not None
            where = (group.start.master_addr, group.start.master_port)
            told.append(collective.register.remote(order.name, *where, len(order.placements)))
        if plan is not None:
            told.append(self._managers[NodeManager].add_plan.remote(plan.digest, pickle.dumps(plan)))
        answer(told, "registering the groups")

    def taken(self, names: Sequence[str]) -> list[str]:
        manager = WorkerManager.get_proxy(self.job)
        there = manager.list_groups()
        return [name for name in names if name in there and _any_alive(manager.get_workers(name))]

    def running_group(self, name: str) -> RunningGroup:
        manager = WorkerManager.get_proxy(self.job)
        found = manager.get_group(name)
        if found is None:
            raise ClusterError(
                code="RE116",
                what=f"job {self.job!r} has no group {name!r}",
                remedy=nearest(name, manager.list_groups()),
            )
        mine = self._groups.get(name)
        workers = mine[1] if mine else RayWorkers.attached(self.job, name, found, self.inventory.nodes)
        return RunningGroup(methods=tuple(found["methods"]), members=workers)

    def restarted(self, name: str) -> None:
        if (known := self._groups.get(name)) is not None:  # not shut down meanwhile
            self._register(None, [known])

    def end_group(self, name: str) -> None:
        ended = self._groups.pop(name, None)
        if ended is None:
            return
        ended[1].stop()
        if self.is_open:
            self._managers[WorkerManager].remove_group.remote(name)
            self._managers[CollectiveManager].remove.remote(name)
            if moved_to := self._moved_to.pop(name, None):
                self.unreserve(moved_to)

    def allocate(self, order: AllocationOrder) -> Any:
        node = order.place.cluster_node_rank
        names = self.reservation.device_names(node, order.place.hardware)
        handle = start_allocated(order, self.live[node].node_id, names)
        self._allocated.append(handle)
        self._managers[WorkerManager].note_allocated.remote(order.name)
        return handle

    # -- ports and locks -------------------------------------------------------------------------------------------

    def lease_ports(self, node: int, count: int, consecutive: bool, timeout: float) -> PortLease:
        there, owner = self.live[node], Owner(who=f"job {self.job!r}")
        return lease_from(self.job, there.node_id, there.facts.ip, count, consecutive, owner, timeout)

    def locks_on(self, node: int) -> AgentLocks:
        there = self.live[node]
        here = ray.get_runtime_context().get_node_id() == there.node_id
        return AgentLocks(self.job, there.node_id, str(self.inventory.nodes[node]), here, driver=self.owner)

    # -- pools -----------------------------------------------------------------------------------------------------

    def take_positions(self, wanted: PoolRequest) -> list[Position]:
        if wanted.named is None:
            taken = self.reservation.take_first(wanted.count, wanted.nodes, wanted.timeout, wanted.apart)
            self._pooled.update(dict.fromkeys(taken, True))
        else:
            taken = self._take_named(wanted.named, wanted.timeout, wanted.apart)
        held = self.reservation.held
        return [
            Position(node=node, device=device, name=held[node, device].name, bundle=held[node, device].bundle)
            for node, device in taken
        ]

    def _take_named(
        self, wanted: Sequence[tuple[int, int]], timeout: float, apart: bool
    ) -> list[tuple[int, int]]:
        double = [key for key in wanted if key in self._pooled]
        if double:
            raise _held_already(double, "are in another pool of this job", "release that pool first")
        if apart:
            self.reservation.refresh()
            bundled = [key for key in wanted if key in self.reservation.held]
            if bundled:  # a group's accelerators of a node are one bundle, and it has no CPU
                how = "are held for worker groups of this job, which keeps them"
                raise _held_already(bundled, how, "create the placement groups before those worker groups")
        needs: dict[int, set[int]] = {}
        for node, device in wanted:
            needs.setdefault(node, set()).add(device)
        own = {key for key in wanted if key not in self.reservation.held}
        self.reservation.ensure(needs, timeout, exact=True, apart=apart)
        self._pooled.update({key: key in own for key in wanted})
        return list(wanted)

    def give_back_positions(self, positions: Sequence[Position]) -> None:
        keys = [(one.node, one.device) for one in positions]
        # What a group held before the pool came is not the pool's to give back.
        own = {key for key in keys if self._pooled.pop(key, False)}
        if not self.is_open:
            return
        for name, (order, _) in list(self._groups.items()):
            if not own.isdisjoint(_accelerators(order.placements)):
                self.end_group(name)
        with self._counting:
            for key in own:
                del self._uses[key]
        self.reservation.give_back(own)

    # -- the end ---------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        if not self._open:
            return
        self._open = False
        job_closed(self.job)
        if self.owner:
            spare_main(self.job)
            forget_run(self.job)
        try:
            if self._watch is not None:
                self._watch.closing()
            if ray.is_initialized() and not cluster_is_gone():
                leave_channels(self.job)
                for group in list(self._starting):  # another thread launches: it will be told
                    group.stop()
                for name in list(self._groups):
                    self.end_group(name)
                managed = [*self._managers.values(), *self._agents.values()] if self.owner else []
                for handle in [*self._allocated, *managed]:
                    ray.kill(handle)
                self.reservation.release()
        finally:
            if self._watch is not None:
                self._watch.close()
            self._connection.close()
            if self.owner:
                forget_job(self.job)


def _accelerators(placements: Sequence[Placement]) -> set[tuple[int, int]]:
    """The accelerators of a group, by node and number."""
    return {
        (place.cluster_node_rank, number)
        for place in placements
        if place.holds_accelerators
        for number in place.hardware
    }


def _held_already(keys: Sequence[tuple[int, int]], how: str, remedy: str) -> ReservationError:
    return ReservationError(
        code="RE107",
        what=f"{counted(len(keys), 'accelerator')} {how}",
        why=", ".join(f"node {node}: {device}" for node, device in keys[:8]),
        remedy=f"{remedy}, or name other accelerators",
    )


def _any_alive(workers: Sequence[Any]) -> bool:
    """Whether a group still has a process. Workers end with the process that launched them."""
    refs = [worker.__ray_ready__.remote() for worker in workers]
    ready, busy = ray.wait(refs, num_returns=len(refs), timeout=2) if refs else ([], [])
    for ref in ready:
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError:
            continue
        return True
    return bool(busy)
