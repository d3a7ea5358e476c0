"""A job on Ray."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import threading
from collections import deque
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
from roost.engine.connection.actors import answer, find_actor
from roost.engine.connection.cluster_watch import (
    check_cluster,
    cluster_is_gone,
    forget_job,
    job_is_ended,
    spare_main,
)
from roost.engine.connection.discovery import LiveNode
from roost.engine.connection.ray_connection import connect
from roost.engine.events import MOST_EVENTS, Event, Standing
from roost.engine.job.agent_grants import AgentLocks, lease_from
from roost.engine.job.agents import agent_of, start_agent
from roost.engine.job.job_reader import JobReader
from roost.engine.job.managers import (
    MANAGERS,
    CollectiveManager,
    Manager,
    NodeManager,
    WorkerManager,
    current_job,
)
from roost.engine.job.open_jobs import (
    check_order,
    follow_run,
    forget_run,
    job_closed,
    job_opened,
    obey,
)
from roost.engine.job.ray_channel import leave_channels
from roost.engine.job_snapshot import JobSnapshot
from roost.engine.launch_orders import aftermath_of_launch
from roost.engine.learned_groups import LearnedGroups
from roost.engine.ports.port_lease import PortLease
from roost.engine.processes.process_facts import Owner
from roost.engine.ray_backend.accelerator_uses import AcceleratorUses
from roost.engine.ray_backend.allocation import start_allocated
from roost.engine.ray_backend.job_opening import chosen_nodes, tell_managers
from roost.engine.ray_backend.job_watch import JobWatch
from roost.engine.ray_backend.ray_workers import RayWorkers
from roost.engine.ray_backend.starting import Site, gathered, group_starts
from roost.engine.reservation.reservation import Reservation
from roost.errors import ClusterError, RoostError, nearest
from roost.inventory.groups import NodeGroup
from roost.inventory.inventory import Inventory
from roost.inventory.ordering import NodeInfo
from roost.planning.component_plan import AcceleratorKey, accelerators_of
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
        self._watch: JobWatch | None = None  # from the first launch on
        self._reader = JobReader(job)
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)  # that this process recorded
        self._learned = LearnedGroups()
        self._became: dict[str, Plan] = {}  # launched plans whose processes have moved, by digest
        self._open = True
        self.live: list[LiveNode] = []
        self.inventory = Inventory(nodes=())
        self.master_addr, self.master_port = "", 0
        self.accelerators = AcceleratorUses(Reservation(job, self.live), self._used_by_groups)

    # -- the driver's way in -------------------------------------------------------------------------------------

    @classmethod
    def create(cls, options: ClusterOptions) -> RayBackend:
        job = checked_job_name(options.job or os.environ.get("ROOST_JOB") or f"job-{secrets.token_hex(3)}")
        connection = connect(options.address, options.num_nodes)
        backend = cls(job, connection, owner=True)
        job_opened(job, driver=True)
        try:
            backend._create(options)
        except BaseException:
            backend.shutdown()
            raise
        return backend

    def _create(self, options: ClusterOptions) -> None:
        self.live = chosen_nodes(self.job, self.address, options, self._agents)
        nodes = tuple(node.facts.as_node(rank) for rank, node in enumerate(self.live))
        self.inventory = with_groups(Inventory(nodes=nodes), options)
        first = self.live[0]
        self.master_addr = first.facts.ip
        self.master_port = answer(first.agent.lease_ports.remote(1), "leasing the master port")[0]
        self.accelerators.reservation = Reservation(self.job, self.live, whole_nodes=options.whole_nodes)
        # After the agents have answered, since their processes would otherwise start in competition with these.
        self._managers |= {manager: manager.start(first.node_id, self.job) for manager in MANAGERS}
        master = (self.master_addr, self.master_port)
        tell_managers(self._managers, self.job, self.address, self.live, self.inventory, master)
        asked = self._managers[NodeManager].wait_taken_down.remote()
        asked.future().add_done_callback(self._told_to_end)

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
        # Suppressed errors are such as of a connection that is just closed.
        with contextlib.suppress(RoostError, ray.exceptions.RayError):
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
            backend._managers |= {one: find_actor(one.NAME, name) for one in MANAGERS}
            backend.live = [LiveNode(facts, agent_of(name, facts.node_id)) for facts in layout["facts"]]
            backend.inventory = Inventory(nodes=tuple(layout["nodes"]), groups=layout["groups"])
            backend.master_addr, backend.master_port = layout["master_addr"], layout["master_port"]
            follow_run(name, layout["run"]["token"])
            held = manager.get_held()
            backend.accelerators.reservation = Reservation(name, backend.live, held, attached=True)
            job_opened(name)
        except BaseException:
            connection.close()
            raise
        return backend

    # -- what is known ---------------------------------------------------------------------------------------------

    @property
    def node_infos(self) -> list[NodeInfo]:
        return [node.facts for node in self.live]

    @property
    def reservation(self) -> Reservation:
        return self.accelerators.reservation

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

    def learn_groups(self, groups: Mapping[str, NodeGroup]) -> list[str]:
        self.inventory, used = self._learned.learn(self.inventory, groups)
        if used:
            self._managers[NodeManager].add_groups.remote(
                {name: self.inventory.groups[name] for name in used}
            )
        return used

    def forget_groups(self, labels: Collection[str]) -> None:
        self.inventory, unused = self._learned.forget(self.inventory, labels)
        if unused and self.is_open:
            self._managers[NodeManager].remove_groups.remote(unused)

    # -- groups ----------------------------------------------------------------------------------------------------

    def reserve(self, needs: Needs) -> list[tuple[int, int]]:
        check_cluster(self.job)
        return self.accelerators.reserve(needs)

    def unreserve(self, accelerators: Sequence[tuple[int, int]]) -> None:
        if self.is_open:
            self.accelerators.unreserve(accelerators)

    def start(
        self, plan: Plan, orders: Sequence[GroupOrder], timeout: float, report: Report
    ) -> dict[str, RunningGroup]:
        site = Site(job=self.job, live=self.live, reservation=self.reservation)
        starts = group_starts(site, plan, orders, self.history)
        groups = [
            RayWorkers(self.job, start.order.name, start.order.placements, self.inventory.nodes, start)
            for start in starts
        ]
        try:
            self._starting += groups
            begun = {
                ref: started
                for group in groups
                for ref, started in group.begin(range(len(group.placements))).items()
            }
            report(Progress(phase="started", done=len(begun), total=len(begun)))
            reports = gathered(begun, timeout, aftermath_of_launch(orders), report)
            for group in groups:
                assert group.start is not None
                group.started(dict(group.handles), reports[group.start])
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
        self._became.pop(plan.digest, None)  # launched again, it has not moved
        self._watching().cover(plan, orders)
        return {
            order.name: RunningGroup(methods=tuple(order.worker.methods), members=group)
            for order, group in zip(orders, groups, strict=True)
        }

    @property
    def history(self) -> Any:
        """The manager that keeps events."""
        return self._managers[WorkerManager]

    def replace_agent(self, node: int) -> Any:
        """Start another agent on a node whose agent has died. It ends with this driver too."""
        dead = self.live[node]
        ray.kill(dead.agent)  # Ray finds it by its name until then
        started = self._agents[dead.node_id] = start_agent(dead.node_id, self.job, succeeds=True)
        return started

    def _watching(self) -> JobWatch:
        if self._watch is None:
            self._watch = JobWatch(self, self._groups)
        return self._watch

    def relocated(self, before: Plan, plan: Plan, orders: Mapping[str, GroupOrder]) -> None:
        """Reserve what moved processes need, and let everyone know the new plan."""
        known = {name: there for name in orders if (there := self._groups.get(name))}  # others were shut down
        self.accelerators.move(
            {
                name: accelerators_of(orders[name].placements) - accelerators_of(old.placements)
                for name, (old, _) in known.items()
            }
        )
        for name, (old, group) in known.items():
            order = orders[name]
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
        self._tell_history("record", list(events))

    def note_standings(self, standings: Mapping[str, Standing]) -> None:
        """Let the job's other processes know what the watch does about lost processes."""
        self._tell_history("note_standings", standings)

    def _tell_history(self, method: str, what: Any) -> None:
        if self._open and ray.is_initialized() and not cluster_is_gone():
            getattr(self.history, method).remote(what)

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

    # -- finding groups, which the job's managers know all ---------------------------------------------------------

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

    def _used_by_groups(self) -> set[AcceleratorKey]:
        """The accelerators of all groups of the job."""
        try:
            listed = WorkerManager.get_proxy(self.job).list_groups().values()
            groups = [group["placements"] for group in listed]
        except ClusterError:  # the manager was killed; this process still knows its own groups
            check_cluster()
            groups = [order.placements for order, _ in self._groups.values()]
        return {key for placements in groups for key in accelerators_of(placements)}

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
        if (mine := self._groups.get(name)) is not None:
            workers = mine[1]
        else:
            workers = RayWorkers(self.job, name, found["placements"], self.inventory.nodes)
            workers.refresh(found)
        return RunningGroup(methods=tuple(found["methods"]), members=workers)

    def restarted(self, name: str) -> None:
        if (known := self._groups.get(name)) is not None:  # None after a shutdown in another thread
            self._register(None, [known])

    def end_group(self, name: str) -> None:
        ended = self._groups.pop(name, None)
        if ended is None:
            return
        ended[1].stop()
        if self.is_open:
            self._managers[WorkerManager].remove_group.remote(name)
            self._managers[CollectiveManager].remove.remote(name)
            self.accelerators.group_ended(name)

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
        return self.accelerators.take_positions(wanted)

    def give_back_positions(self, positions: Sequence[Position]) -> None:
        keys = {(one.node, one.device) for one in positions}
        own = self.accelerators.leave_pool(keys)
        if not self.is_open:
            return
        for name, (order, _) in list(self._groups.items()):
            if not own.isdisjoint(accelerators_of(order.placements)):
                self.end_group(name)
        self.accelerators.give_back_pool(own, keys - own)

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
