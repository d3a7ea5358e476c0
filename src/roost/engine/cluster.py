"""The cluster a program runs on: on Ray, or inline in one process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from types import MethodType
from typing import Any, ClassVar

from roost.config.job import read_supervised_layout
from roost.engine.backend import AllocationOrder, Backend, Report
from roost.engine.backends import attached_backend, new_backend
from roost.engine.cluster_options import ClusterOptions, contradictions, options_of
from roost.engine.events import Event
from roost.engine.group import WorkerGroup
from roost.engine.launch_orders import order_for, orders_for
from roost.engine.locks.device_lock import DeviceLock, check_number, check_on, lock_on
from roost.engine.locks.node_devices import NodeDevices
from roost.engine.pool import Pool, open_pool
from roost.engine.ports.port_lease import PortLease
from roost.engine.run import Run, start_run
from roost.engine.workers.environment import checked_variables
from roost.engine.workers.worker import START_WITHIN, GroupLauncher
from roost.errors import ClusterError
from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Node
from roost.inventory.ordering import NodeInfo
from roost.planning.component_plan import needs_of
from roost.planning.plan import Plan
from roost.planning.planner import everywhere, plan_allocation, plan_one
from roost.planning.policy_checks import with_policies


class on_the_open_cluster:
    """A method that called on the class means the cluster that this process has open."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, cluster: Cluster | None, owner: type[Cluster]) -> Callable[..., Any]:
        if cluster is not None:
            return MethodType(self._method, cluster)

        @wraps(self._method)
        def call(*args: Any, **kwargs: Any) -> Any:
            found = owner.opened()
            if found is None:
                raise ClusterError(
                    code="RE106",
                    what=f"Cluster.{self._method.__name__} needs a cluster, and this process has none open",
                    remedy="make one first: Cluster(num_nodes=...), or attach to a running job: Cluster()",
                )
            return self._method(found, *args, **kwargs)

        return call


def _only(clusters: dict[str, Cluster], job: str | None) -> Cluster | None:
    """The open cluster of that job, or the only open one when no job is named. Forgets those that were shut down."""
    for name in [name for name, cluster in clusters.items() if not cluster._backend.is_open]:
        del clusters[name]
    if job is not None:
        return clusters.get(job)
    if len(clusters) > 1:
        raise ClusterError(
            code="RE103",
            what="this process has several clusters open",
            why=f"their jobs are {', '.join(sorted(clusters))}",
            remedy="name the job: Cluster(..., job=...)",
        )
    return next(iter(clusters.values()), None)


class Cluster(AbstractContextManager["Cluster"]):
    """Connects, finds out what is there, and starts workers.

    `Cluster(num_nodes=2)` or `Cluster(cluster_cfg=cfg.cluster)` in the driver; asked for again while it is open, it
    is the same object, and a second job is asked for by its name. `Cluster()` attaches to the job that is running. A job
    holds the accelerators it uses, or with `whole_nodes=True` all accelerators of the nodes it uses. With `inline=True`
    or ROOST_INLINE set, everything happens in this process.
    """

    NAMESPACE: ClassVar[str] = "roost"

    _backend: Backend
    _options: ClusterOptions  # of the process that made the job
    _made: ClassVar[dict[str, Cluster]] = {}  # by this process, by job
    _attached: ClassVar[dict[str, Cluster]] = {}  # to jobs of other processes, by job

    def __new__(
        cls,
        num_nodes: int | None = None,
        cluster_cfg: Any = None,
        *,
        address: str | None = None,
        job: str | None = None,
        timeout: float = 300.0,
        whole_nodes: bool = False,
        inline: bool | str | None = None,
    ) -> Cluster:
        if num_nodes is None and cluster_cfg is None:
            cluster = super().__new__(cls)
            cluster._backend = attached_backend(address, job, inline)
            cls._attached[cluster.job] = cluster
            return cluster
        given = {"address": address, "job": job, "timeout": timeout, "whole_nodes": whole_nodes}
        options = options_of(num_nodes, cluster_cfg, inline, **given)
        made = _only(cls._made, job)
        if made is not None:
            made._check_fits(options)
            return made
        cluster = super().__new__(cls)
        cluster._backend, cluster._options = new_backend(options), options
        cls._made[cluster.job] = cluster
        return cluster

    @classmethod
    def opened(cls, job: str | None = None) -> Cluster | None:
        """The cluster this process has open: the one of that job, or the only one when no job is named.

        It is one that this process made, or else one that it attached to.
        """
        return _only(cls._made, job) or _only(cls._attached, job)

    def _check_fits(self, asked: ClusterOptions) -> None:
        """Refuse options that contradict the cluster this process has already."""
        differences = contradictions(asked, self._options, self._backend.address, self.num_nodes)
        if differences:
            raise ClusterError(
                code="RE103",
                what=f"this process already has a cluster, of job {self.job!r}, and another one is asked for",
                why="; ".join(differences),
                remedy="use that cluster, shut it down first, or name a second job: Cluster(..., job=...)",
            )

    # -- what is there ---------------------------------------------------------------------------------------------

    @property
    def job(self) -> str:
        return self._backend.job

    @property
    def inventory(self) -> Inventory:
        return self._backend.inventory

    @property
    def master_addr(self) -> str:
        return self._backend.master_addr

    master_ip = master_addr

    @property
    def master_port(self) -> int:
        return self._backend.master_port

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self.inventory.nodes

    @property
    def node_infos(self) -> list[NodeInfo]:
        """What was found out about each node, in order. Inline there is nothing to find out."""
        return self._backend.node_infos

    @property
    def num_nodes(self) -> int:
        return len(self.inventory.nodes)

    @property
    def num_accelerators(self) -> int:
        return self.inventory.num_accelerators

    @property
    def plans(self) -> list[Plan]:
        """The last 1,000 plans that were launched in this job, by any of its processes, each once."""
        return self._backend.plans

    @property
    def events(self) -> list[Event]:
        """What happened in this job, the last 10,000 events: in the driver those that it recorded, elsewhere all."""
        return self._backend.events

    # -- launching -------------------------------------------------------------------------------------------------

    def launch(
        self,
        plan: Plan,
        workers: Mapping[str, Any],
        *,
        skip: Collection[str] = (),
        timeout: float = START_WITHIN,
        report: Report | None = None,
        supervise: Mapping[str, Any] | None = None,
    ) -> Run:
        """Start every component of a plan at once, all or nothing, each process where the plan has it.

        `workers` maps components to `Worker` classes or `create_group(...)`. Components in `skip` hold their
        accelerators and run nothing. `report` is called with the progress. `supervise` replaces the plan's policies
        of the components it names.
        """
        self._backend.check_open()
        if not isinstance(plan, Plan):
            raise ClusterError(
                code="RE103",
                what=f"a value of type {type(plan).__name__} is not a plan",
                remedy="pass roost.plan(job, cluster) or roost.load_plan(file)",
            )
        if supervise:
            plan = with_policies(plan, supervise)
        return start_run(self._backend, plan, orders_for(plan, workers, skip), timeout, report)

    def launch_group(
        self,
        worker: GroupLauncher,
        strategy: Any = None,
        name: str | None = None,
        isolate_accelerator: bool = True,
        timeout: float = START_WITHIN,
    ) -> WorkerGroup:
        """A plan of one component. Programs call it as `MyWorker.create_group(...).launch(cluster, ...)`."""
        self._backend.check_open()
        group = name or worker.cls.__name__
        placing = everywhere(self.inventory) if strategy is None else strategy
        plan = plan_one(group, placing, self.inventory, isolate_accelerator)
        order = order_for(plan, plan.components[group], worker, charged=False)
        run = start_run(self._backend, plan, [order], timeout)
        run._end_with_groups()
        return run.groups[group]

    def launch_components(
        self, plan: Plan, workers: Mapping[str, tuple[GroupLauncher, str]], timeout: float
    ) -> Mapping[str, WorkerGroup]:
        """Some components of a plan, each under a name of its own; used by pools."""
        self._backend.check_open()
        orders = [
            order_for(plan, plan.component(component), worker, name)
            for component, (worker, name) in workers.items()
        ]
        run = start_run(self._backend, plan, orders, timeout)
        run._end_with_groups()
        return run.groups

    def attach_group(self, name: str) -> WorkerGroup:
        """A group of this job that is running."""
        self._backend.check_open()
        return WorkerGroup(name, self._backend, self._backend.running_group(name), owned=False)

    @on_the_open_cluster
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
        """One actor of a plain class, pinned to a node and an accelerator; returns its handle.

        Also as `Cluster.allocate(...)`, once this process has a cluster. The actor is found by
        `ray.get_actor(worker_name, namespace=Cluster.NAMESPACE)`.
        """
        self._backend.check_open()
        self.check_device(node_id, gpu_id)
        if not isinstance(cls, type):
            raise ClusterError(code="RE114", what=f"allocate takes a class, not {cls!r}"[:200])
        if not isinstance(worker_name, str) or not worker_name:
            what = "worker_name must be a text of at least one character"
            raise ClusterError(code="RE115", what=what)
        variables = checked_variables({} if env_vars is None else env_vars)
        plan = plan_allocation(worker_name, node_id, gpu_id, self.inventory)
        held = self._backend.reserve(needs_of(list(plan.components.values())))
        (place,) = plan.components[worker_name].members
        order = AllocationOrder(
            name=worker_name,
            cls=cls,
            place=place,
            variables=variables,
            args=cls_args,
            kwargs=cls_kwargs or {},
        )
        try:
            return self._backend.allocate(order)
        except BaseException:
            self._backend.unreserve(held)
            raise

    # -- ports, locks and pools ------------------------------------------------------------------------------------

    def lease_ports(
        self, node_rank: int, count: int = 1, consecutive: bool = False, timeout: float = 30.0
    ) -> PortLease:
        """Ports of any node, for the job: they are held until they are released or the job ends."""
        self._backend.check_open()
        self.check_device(node_rank, None)
        return self._backend.lease_ports(node_rank, count, consecutive, timeout)

    def device_lock(
        self,
        node_rank: int,
        devices: Sequence[int | str],
        timeout: float = 60.0,
        hold_for: float | None = None,
    ) -> DeviceLock:
        """Lock devices of any node; waits for its turn, at most `timeout` seconds."""
        known = self.devices_on(node_rank)
        return lock_on(self._backend.locks_on(node_rank), known.identify_all(devices), timeout, hold_for)

    def check_fence(self, node_rank: int, device: int | str, fence: int) -> None:
        """Raises unless this is the number of the lock held on the device now."""
        check_number(fence)
        known = self.devices_on(node_rank)
        check_on(self._backend.locks_on(node_rank), known.identify(device), fence)

    def devices_on(self, node_rank: int) -> NodeDevices:
        """What can be locked on a node, by every name it has."""
        self._backend.check_open()
        self.check_device(node_rank, None)
        infos = self.node_infos
        names = infos[node_rank].device_names if infos else ()
        return NodeDevices.of(self.job, self.nodes[node_rank], self.inventory.groups, names)

    def pool(self, layout: Any, timeout: float = 60.0, apart: bool = False) -> Pool:
        """Hold the accelerators a layout needs, in a stable order.

        `layout` is a `Layout`, an `argparse.Namespace` or mapping with its flags, or a job whose `cluster`
        section has one. `apart`, each accelerator is in a Ray bundle of its own, with a CPU. The job's restart
        policies are those of the pool's train roles.
        """
        self._backend.check_open()
        found, supervise = read_supervised_layout(layout)
        return open_pool(self, self._backend, found, timeout, apart, supervise)

    # -- the end ---------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End what this process started. May be called twice."""
        self._backend.shutdown()

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<cluster of job {self.job}, {self.inventory}>"

    def check_device(self, node_id: int, gpu_id: int | None) -> None:
        """Refuse a node or accelerator that does not exist, saying what does."""
        if isinstance(node_id, bool) or not isinstance(node_id, int) or not 0 <= node_id < self.num_nodes:
            listed = "; ".join(f"{node}: {node.accelerators.count} accelerators" for node in self.nodes[:8])
            raise ClusterError(
                code="RE114", what=f"node {node_id!r} does not exist", why=f"there are {listed}"
            )
        count = self.nodes[node_id].accelerators.count
        known = isinstance(gpu_id, int) and not isinstance(gpu_id, bool) and 0 <= gpu_id < count
        if gpu_id is not None and not known:
            has = f"accelerators 0-{count - 1}" if count else "no accelerators"
            raise ClusterError(
                code="RE114",
                what=f"accelerator {gpu_id!r} does not exist on {self.nodes[node_id]}",
                why=f"it has {has}",
                remedy="pass gpu_id=None for a process without one",
            )
