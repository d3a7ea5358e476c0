"""The three named actors of a job. They know its workers, its collective groups and its nodes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import ray

from roost.engine.connection.actors import (
    NAMESPACE,
    answer,
    find_actor,
    job_namespace,
    named,
    named_actors,
    on_node,
)
from roost.engine.connection.cluster_watch import HEAD_WITHIN
from roost.engine.events import MOST_EVENTS, Standing
from roost.engine.job.job_folder import JobHistory, StartedProcess
from roost.engine.job.open_jobs import TakeDownOrder, own_job
from roost.engine.kept_plans import keep_plan
from roost.errors import ClusterError

ANSWER_WITHIN = 30.0
MOST_PROCESSES = 50_000  # in memory; the file has all


class Proxy:
    """A manager whose methods are plain calls: they wait for the answer, at most `ANSWER_WITHIN` seconds."""

    def __init__(self, handle: Any, name: str) -> None:
        self._handle, self._name = handle, name

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*args: Any, **kwargs: Any) -> Any:
            check_connected()
            asked = getattr(self._handle, method).remote(*args, **kwargs)
            return answer(asked, f"{self._name}.{method}", ANSWER_WITHIN)

        return call


class Manager:
    """One of the job's named actors."""

    NAME: ClassVar[str] = ""

    @classmethod
    def start(cls, node_id: str, job: str) -> Any:
        actor = ray.remote(num_cpus=0)(cls)
        placed = actor.options(
            name=cls.NAME, namespace=job_namespace(job), scheduling_strategy=on_node(node_id)
        )
        return named(placed.remote)

    @classmethod
    def get_proxy(cls, job: str | None = None) -> Any:
        """The manager of this process's job, or of the only job there is."""
        check_connected()
        name = job or current_job()
        try:
            handle = find_actor(cls.NAME, name)
        except ValueError:
            raise ClusterError(
                code="RE106", what=f"no job {name!r} is running", remedy=running_text(running_jobs())
            ) from None
        return Proxy(handle, f"{cls.NAME} of job {name!r}")


class NodeManager(Manager):
    """The job's nodes, its master address and port, and the accelerators it holds."""

    NAME = "NodeManager"

    def __init__(self) -> None:
        self._layout: dict[str, Any] = {}
        self._told = asyncio.Event()  # other processes may ask before the driver has told the layout
        self._held: dict[tuple[int, int], Any] = {}
        self._plans: dict[str, bytes] = {}  # by digest: a plan that is launched again is kept once
        self._became: dict[str, str] = {}  # plans whose processes have moved, and what they are now; digests
        self._order: TakeDownOrder | None = None
        self._ordered = asyncio.Event()

    async def take_down(self, order: TakeDownOrder) -> None:
        """Let the job's driver know that it should end the job."""
        self._order = self._order or order
        self._ordered.set()

    async def wait_taken_down(self) -> TakeDownOrder:
        """Asked by the driver; answered when the job is to end."""
        await self._ordered.wait()
        assert self._order is not None
        return self._order

    def add_plan(self, digest: str, plan: bytes, instead_of: str | None = None) -> None:
        """Keep a plan that the job has launched. It is not unpickled here: that would load all of planning."""
        keep_plan(self._plans, digest, plan)
        self._became.pop(digest, None)  # launched again, it has not moved
        if instead_of is not None:
            self._became = {old: digest if new == instead_of else new for old, new in self._became.items()}
            self._became[instead_of] = digest
        self._became = {old: new for old, new in self._became.items() if new in self._plans}

    def get_plans(self) -> list[bytes]:
        return list(self._plans.values())

    async def describe(self, known: Collection[str] = ()) -> dict[str, Any]:
        """The layout, and the plans of other digests than the known ones."""
        return {
            "layout": await self.get_layout(),
            "plans": {digest: plan for digest, plan in self._plans.items() if digest not in known},
            "became": self._became,
        }

    async def set_layout(self, layout: Mapping[str, Any]) -> None:
        self._layout = dict(layout)
        self._told.set()

    async def add_groups(self, groups: Mapping[str, Any]) -> None:
        await self._told.wait()  # Ray may deliver this before the layout
        self._layout["groups"] = {**self._layout["groups"], **groups}

    async def remove_groups(self, labels: Iterable[str]) -> None:
        await self._told.wait()
        self._layout["groups"] = {
            label: group for label, group in self._layout["groups"].items() if label not in set(labels)
        }

    async def get_layout(self) -> dict[str, Any]:
        await self._told.wait()
        return self._layout

    async def get_nodes(self) -> list[Any]:
        """One `NodeInfo` for each, in order."""
        return list((await self.get_layout())["facts"])

    async def get_master_ip(self) -> str:
        return str((await self.get_layout())["master_addr"])

    get_master_addr = get_master_ip

    async def get_master_port(self) -> int:
        return int((await self.get_layout())["master_port"])

    async def get_num_gpus_per_node(self) -> int:
        """The accelerators of the first node: programs that call this expect equal nodes."""
        nodes = (await self.get_layout())["nodes"]
        return int(nodes[0].accelerators.count) if nodes else 0

    def add_holdings(self, held: Mapping[tuple[int, int], Any]) -> None:
        """Add accelerators the job holds: (node, planned number) to the granted accelerator."""
        self._held.update(held)

    def get_held(self) -> dict[tuple[int, int], Any]:
        return self._held

    def get_holdings(self) -> dict[str, list[Any]]:
        """The held accelerators by node id, for other jobs, which number the nodes differently."""
        by_node: dict[str, list[Any]] = {}
        for (rank, _), holding in self._held.items():
            by_node.setdefault(self._layout["facts"][rank].node_id, []).append(holding)
        return by_node


class WorkerManager(Manager):
    """Metadata and state of every worker."""

    NAME = "WorkerManager"

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Any]] = {}
        self._revision = 0  # of the groups
        self._ended: dict[tuple[str, str], None] = {}  # plans and components whose groups were shut down
        self._events: list[Any] = []
        self._recorded = 0  # events, also those that are only in the file by now
        self._history: JobHistory | None = None
        self._processes: dict[tuple[str, int, int], StartedProcess] = {}  # also those that have ended
        self._allocated: list[str] = []
        self._standings: dict[str, Standing] = {}  # by group

    def open_history(self, job: str, run: Mapping[str, Any]) -> None:
        self._history = JobHistory(job)
        self._history.write_start(run)

    def record(self, events: Iterable[Any]) -> None:
        """Keep what happened, for every process that asks, and write it into the job's folder."""
        for event in events:
            self._events.append(event)
            self._recorded += 1
            if self._history is not None:
                self._history.write(event)
        del self._events[:-MOST_EVENTS]

    def get_events(self) -> list[Any]:
        return self._events

    def note_standings(self, standings: Mapping[str, Standing]) -> None:
        """Keep what the driver has decided about the lost processes of these groups."""
        self._standings.update(standings)

    def get_standing(self, name: str) -> Standing:
        """What the driver has decided about the lost processes of a group."""
        return self._standings.get(name, Standing())

    def register_groups(self, descriptions: Mapping[str, Mapping[str, Any]]) -> None:
        self._groups.update({name: {**group, "state": "running"} for name, group in descriptions.items()})
        for group in descriptions.values():
            self._ended.pop((group["plan"], group["component"]), None)
            self._note_processes(group["processes"])
        self._revision += 1

    def describe(self, revision: int = -1, recorded: int = 0) -> dict[str, Any]:
        """The groups without their actors, unless they are as in that revision, and the events after so many."""
        changed = revision != self._revision
        new = self._recorded - recorded
        return {
            "revision": self._revision,
            "groups": self._groups_without("workers", "processes") if changed else {},
            "ended": list(self._ended) if changed else [],
            "recorded": self._recorded,
            "events": self._events[-new:] if new > 0 else [],
        }

    def _note_processes(self, processes: Iterable[StartedProcess]) -> None:
        for process in processes:
            if process != self._processes.get(process.key):
                self._processes[process.key] = process
                if self._history is not None:
                    self._history.write_process(process)
        while len(self._processes) > MOST_PROCESSES:
            del self._processes[next(iter(self._processes))]

    def get_processes(self) -> list[StartedProcess]:
        """Every process of the job's groups, of all generations."""
        return list(self._processes.values())

    def note_allocated(self, name: str) -> None:
        self._allocated.append(name)

    def get_allocated(self) -> list[str]:
        """The names of actors of plain classes. They are not in the namespace of the job."""
        return self._allocated

    def get_group(self, name: str) -> dict[str, Any] | None:
        return self._groups.get(name) if isinstance(name, str) else None

    def list_groups(self) -> dict[str, dict[str, Any]]:
        return self._groups_without("workers", "reports", "processes")

    def _groups_without(self, *keys: str) -> dict[str, dict[str, Any]]:
        return {
            name: {key: value for key, value in group.items() if key not in keys}
            for name, group in self._groups.items()
        }

    def get_workers(self, name: str) -> list[Any]:
        return list(self._groups.get(name, {}).get("workers", ()))

    def remove_group(self, name: str) -> None:
        ended = self._groups.pop(name, None)
        self._standings.pop(name, None)
        if ended is not None:
            self._ended[ended["plan"], ended["component"]] = None
            self._revision += 1


class CollectiveManager(Manager):
    """Collective groups with their rendezvous addresses and ports."""

    NAME = "CollectiveManager"

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Any]] = {}

    def register(self, name: str, master_addr: str, master_port: int, world_size: int) -> None:
        self._groups[name] = {
            "master_addr": master_addr,
            "master_port": master_port,
            "world_size": world_size,
        }

    def get(self, name: str) -> dict[str, Any] | None:
        return self._groups.get(name)

    def list(self) -> dict[str, dict[str, Any]]:
        return dict(self._groups)

    def remove(self, name: str) -> None:
        self._groups.pop(name, None)


MANAGERS: tuple[type[Manager], ...] = (NodeManager, WorkerManager, CollectiveManager)


def check_connected() -> None:
    """Raise unless connected: Ray would start a cluster of its own when called without one."""
    if not ray.is_initialized():
        raise ClusterError(
            code="RE106",
            what="this process is not connected to a cluster",
            remedy="make a roost.Cluster first; Cluster() attaches to a running job",
        )


def running_jobs(within: float = HEAD_WITHIN) -> list[str]:
    """The jobs on the connected cluster. Raises `NoAnswer` after that time."""
    check_connected()
    prefix = f"{NAMESPACE}."
    return sorted(
        namespace.removeprefix(prefix)
        for name, namespace in named_actors(within)
        if name == NodeManager.NAME and namespace.startswith(prefix)
    )


def is_running(job: str) -> bool:
    """Whether a job of this name runs. Ray knows the name of a job that has ended for a moment longer."""
    try:
        handle = find_actor(NodeManager.NAME, job)
        ray.get(handle.get_layout.remote(), timeout=5)
    except (ValueError, ray.exceptions.RayActorError):
        return False
    except ray.exceptions.GetTimeoutError:
        pass
    return True


def current_job() -> str:
    """This process's job: the job of its worker, else the one it has open, else the only one running."""
    told, jobs = os.environ.get("ROOST_JOB"), running_jobs()
    if told and (told in jobs or not jobs):
        return told
    own = own_job()
    if own in jobs:
        return str(own)
    if len(jobs) == 1:
        return jobs[0]
    what = "several jobs are running" if jobs else "no job is running"
    remedy = "name one: Cluster(job=...)" if jobs else "start one with Cluster(num_nodes=...)"
    raise ClusterError(code="RE106", what=what, why=running_text(jobs), remedy=remedy)


def running_text(jobs: Sequence[str]) -> str:
    return f"running: {', '.join(jobs)}" if jobs else "none is running on this cluster"
