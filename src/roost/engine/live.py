"""The cluster on Ray."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from roost.config.schema import NAME
from roost.engine.allocation import check_allocation, start_allocated, variables_for
from roost.engine.cluster import Cluster, Wanted, with_groups
from roost.engine.connection.discovery import LiveNode, choose, examine, wait_for_nodes
from roost.engine.connection.ray_connection import answer, connect, job_namespace
from roost.engine.group import LaunchOrder, WorkerGroup
from roost.engine.job.agent_leases import lease_from
from roost.engine.job.agent_locks import AgentLocks
from roost.engine.job.agents import agent_of, start_agents
from roost.engine.job.managers import (
    MANAGERS,
    CollectiveManager,
    Manager,
    NodeManager,
    WorkerManager,
    current_job,
    is_running,
)
from roost.engine.launching import accelerators_of
from roost.engine.members import RayMembers, start_members
from roost.engine.ports.port_lease import PortLease
from roost.engine.position import Position
from roost.engine.processes.owner import Owner
from roost.engine.reservation.reservation import Reservation
from roost.errors import ClusterError, Finding, ReservationError, nearest
from roost.inventory.groups import NodeGroup
from roost.inventory.inventory import Inventory
from roost.inventory.ordering import NodeInfo

log = logging.getLogger("roost")


class LiveCluster(Cluster):
    def _begin(self) -> None:
        self._groups: dict[str, WorkerGroup] = {}
        self.starting: list[RayMembers] = []
        self._managers: dict[type[Manager], Any] = {}
        self._agents: dict[str, Any] = {}
        self._actors: list[Any] = []
        self._pooled: dict[tuple[int, int], bool] = {}  # accelerators in pools, and whether a pool took them
        self._open = True

    # -- the driver's way in ---------------------------------------------------------------------------

    def _create(self, wanted: Wanted) -> None:
        self._begin()
        self.job = _job_name(wanted.job)
        self.owner = True
        self._connection = connect(wanted.address, job_namespace(self.job), wanted.num_nodes)
        try:
            if is_running(self.job):
                raise ClusterError(
                    Finding(
                        code="RE115",
                        what=f"a job {self.job!r} is already running on this cluster",
                        remedy="choose another name: Cluster(..., job=...)",
                    )
                )
            deadline = time.monotonic() + wanted.timeout
            nodes = wait_for_nodes(wanted.num_nodes, self._connection.address, wanted.timeout)
            self._agents = start_agents(nodes, job_namespace(self.job))
            # Node 0 is almost always the head, so the managers start there while the nodes are examined.
            head = next(
                (node["NodeID"] for node in nodes if "node:__internal_head__" in node["Resources"]), ""
            )
            self._start_managers(head or nodes[0]["NodeID"])
            found = examine(nodes, self._agents, max(1.0, deadline - time.monotonic()))
            self._settle(choose(found, wanted.num_nodes), wanted, head or nodes[0]["NodeID"])
        except BaseException:
            self.shutdown()
            raise

    def _start_managers(self, node_id: str) -> None:
        self._managers = {manager: manager.start(node_id, self.job) for manager in MANAGERS}

    def _settle(self, live: list[LiveNode], wanted: Wanted, managers_on: str) -> None:
        self._live = live
        chosen = {node.node_id for node in live}
        for node_id in [node_id for node_id in self._agents if node_id not in chosen]:
            ray.kill(self._agents.pop(node_id))
        if live[0].node_id != managers_on:
            for handle in self._managers.values():
                ray.kill(handle)
            self._start_managers(live[0].node_id)
        nodes = tuple(node.facts.as_node(rank) for rank, node in enumerate(live))
        self.inventory = with_groups(Inventory(nodes=nodes), wanted.config, wanted.document)
        self.master_addr = live[0].facts.ip
        self.master_port = answer(live[0].agent.lease_ports.remote(1), "leasing the master port")[0]
        self.reservation = Reservation(self.job, live, whole_nodes=wanted.whole_nodes)
        layout = {
            "nodes": nodes,
            "facts": [node.facts for node in live],
            # With their values: they stay between our processes, and an attached one launches with them too.
            "groups": dict(self.inventory.groups),
            "master_addr": self.master_addr,
            "master_port": self.master_port,
            "driver_pid": os.getpid(),
        }
        answer(self._managers[NodeManager].set_layout.remote(layout), "starting the managers")

    # -- the way in for every other process ------------------------------------------------------------

    def _attach(self, address: str | None, job: str | None) -> None:
        self._begin()
        self.owner = False
        self._connection = connect(address, self.NAMESPACE, None, may_start=False)
        try:
            self.job = job or current_job()
            manager = NodeManager.get_proxy(self.job)
            layout = manager.get_layout()
            if not layout:
                raise ClusterError(
                    Finding(
                        code="RE106", what=f"job {self.job!r} is still starting", remedy="try again shortly"
                    )
                )
            self._managers = {
                manager: ray.get_actor(manager.NAME, namespace=job_namespace(self.job))
                for manager in MANAGERS
            }
            self._live = [LiveNode(facts, agent_of(self.job, facts.node_id)) for facts in layout["facts"]]
            self.inventory = Inventory(nodes=tuple(layout["nodes"]), groups=layout["groups"])
            self.master_addr, self.master_port = layout["master_addr"], layout["master_port"]
            self.reservation = Reservation(self.job, self._live, manager.get_held(), attached=True)
        except BaseException:
            self._connection.close()
            raise

    def _tell_groups(self, groups: Mapping[str, NodeGroup]) -> None:
        answer(self._managers[NodeManager].add_groups.remote(dict(groups)), "making node groups known")

    # -- groups ----------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if not self._open or not ray.is_initialized():
            raise ClusterError(Finding(code="RE106", what=f"the cluster of job {self.job!r} was shut down"))

    def start_group(self, order: LaunchOrder) -> WorkerGroup:
        self._check_open()
        manager = WorkerManager.get_proxy(self.job)
        if order.name in manager.list_groups() and _any_alive(manager.get_workers(order.name)):
            raise ClusterError(
                Finding(
                    code="RE115",
                    what=f"a group {order.name!r} is already running in job {self.job!r}",
                    remedy="shut it down first, or launch under another name",
                )
            )
        members = start_members(self, order)
        group = WorkerGroup(order.name, order.placements, order.methods, members, owned=True)
        group._on_shutdown = lambda: self._forget(order.name)
        group._on_restart = lambda: self._register(order, members)
        self._groups[order.name] = group
        try:
            self._register(order, members)
        except BaseException:
            group.shutdown()
            raise
        return group

    def _register(self, order: LaunchOrder, members: RayMembers) -> None:
        """Let the job's other processes find the group."""
        answer(
            [
                self._managers[WorkerManager].register_group.remote(order.name, members.description(order)),
                self._managers[CollectiveManager].register.remote(
                    order.name, members.master_addr, members.master_port, len(order.placements)
                ),
            ],
            "registering the group",
        )

    def _forget(self, name: str) -> None:
        self._groups.pop(name, None)
        if self._open:
            self._managers[WorkerManager].remove_group.remote(name)
            self._managers[CollectiveManager].remove.remote(name)

    def attach_group(self, name: str) -> WorkerGroup:
        self._check_open()
        manager = WorkerManager.get_proxy(self.job)
        found = manager.get_group(name)
        if found is None:
            raise ClusterError(
                Finding(
                    code="RE116",
                    what=f"job {self.job!r} has no group {name!r}",
                    remedy=nearest(name, manager.list_groups()),
                )
            )
        members = RayMembers.attached(name, found, self.inventory.nodes)
        return WorkerGroup(name, found["placements"], found["methods"], members, owned=False)

    @property
    def node_infos(self) -> list[NodeInfo]:
        return [node.facts for node in self._live]

    def node(self, rank: int) -> LiveNode:
        return self._live[rank]

    def allocate(
        self,
        cls: type,
        worker_name: str,
        node_id: int,
        gpu_id: int | None,
        env_vars: Mapping[str, str] | None = None,
        cls_args: Sequence[Any] = (),
        cls_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        self._check_open()
        self.check_device(node_id, gpu_id)
        check_allocation(cls, worker_name)
        names: list[str] = []
        if gpu_id is not None:
            self.reservation.ensure({node_id: {gpu_id}})
            names = self.reservation.device_names(node_id, [gpu_id])
        kind = self.nodes[node_id].accelerators.type
        handle = start_allocated(
            cls,
            worker_name,
            self._live[node_id].node_id,
            variables_for(env_vars or {}, kind, names),
            cls_args,
            cls_kwargs or {},
        )
        self._actors.append(handle)
        return handle

    # -- ports and locks --------------------------------------------------------------------------------

    def lease_ports(
        self, node_rank: int, count: int = 1, consecutive: bool = False, timeout: float = 30.0
    ) -> PortLease:
        self._check_open()
        self.check_device(node_rank, None)
        node, owner = self._live[node_rank], Owner(who=f"job {self.job!r}")
        return lease_from(self.job, node.node_id, node.facts.ip, count, consecutive, owner, timeout)

    def locks_on(self, node_rank: int) -> AgentLocks:
        self._check_open()
        node = self._live[node_rank]
        here = ray.get_runtime_context().get_node_id() == node.node_id
        return AgentLocks(self.job, node.node_id, str(self.nodes[node_rank]), here, driver=self.owner)

    # -- pools -----------------------------------------------------------------------------------------

    def take_positions(
        self, count: int, nodes: Sequence[int], wanted: Sequence[tuple[int, int]] | None, timeout: float
    ) -> list[Position]:
        self._check_open()
        if wanted is None:
            taken = self.reservation.take_first(count, nodes, timeout)
            self._pooled.update(dict.fromkeys(taken, True))
        else:
            taken = self._take_named(wanted, timeout)
        held = self.reservation.held
        return [
            Position(node=node, device=device, name=held[node, device].name, bundle=held[node, device].bundle)
            for node, device in taken
        ]

    def _take_named(self, wanted: Sequence[tuple[int, int]], timeout: float) -> list[tuple[int, int]]:
        double = [key for key in wanted if key in self._pooled]
        if double:
            listed = ", ".join(f"node {node}: {device}" for node, device in double[:8])
            raise ReservationError(
                Finding(
                    code="RE107",
                    what=f"{len(double)} accelerators are in another pool of this job",
                    why=listed,
                    remedy="release that pool first, or name other accelerators",
                )
            )
        needs: dict[int, set[int]] = {}
        for node, device in wanted:
            needs.setdefault(node, set()).add(device)
        own = [key for key in wanted if key not in self.reservation.held]
        self.reservation.ensure(needs, timeout, exact=True)
        self._pooled.update({key: key in set(own) for key in wanted})
        return list(wanted)

    def give_back_positions(self, positions: Sequence[Position]) -> None:
        keys = [(one.node, one.device) for one in positions]
        # What a group held before the pool came is not the pool's to give back.
        own = {key for key in keys if self._pooled.pop(key, False)}
        if not self._open or not ray.is_initialized():
            return
        for group in list(self._groups.values()):
            needs = accelerators_of(self, group.placements)
            if any((node, device) in own for node, devices in needs.items() for device in devices):
                group.shutdown()
        self.reservation.give_back(own)

    # -- the end -----------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            if ray.is_initialized():
                for members in list(self.starting):  # another thread launches: it will be told
                    members.stop()
                for group in list(self._groups.values()):
                    group.shutdown()
                if self.owner:
                    for handle in [*self._actors, *self._managers.values(), *self._agents.values()]:
                        ray.kill(handle)
                if hasattr(self, "reservation"):
                    self.reservation.release()
        finally:
            self._connection.close()

    def __repr__(self) -> str:
        return f"<cluster of job {self.job}, {self.inventory}>"


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


def _job_name(job: str | None) -> str:
    name = job or os.environ.get("ROOST_JOB") or f"job-{secrets.token_hex(3)}"
    if not NAME.fullmatch(name):
        raise ClusterError(
            Finding(
                code="RE115",
                what=f"{name!r} is not a job name",
                remedy="use letters, digits, dot, dash and underscore, at most 64 of them",
            )
        )
    return name
