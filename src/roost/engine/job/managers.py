"""The three named actors of a job: its workers, its collective groups, its nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

import ray

from roost.engine.connection.discovery import on_node
from roost.engine.connection.ray_connection import NAMESPACE, job_namespace, named
from roost.errors import ClusterError, Finding

ANSWER_WITHIN = 30.0


class Proxy:
    """A manager's methods as plain calls that wait for the answer, with a deadline."""

    def __init__(self, handle: Any, name: str) -> None:
        self._handle, self._name = handle, name

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return ray.get(getattr(self._handle, method).remote(*args, **kwargs), timeout=ANSWER_WITHIN)
            except ray.exceptions.GetTimeoutError:
                raise ClusterError(
                    Finding(code="RE112", what=f"{self._name}.{method} did not answer in {ANSWER_WITHIN:g} s")
                ) from None
            except ray.exceptions.RayActorError as error:
                raise ClusterError(
                    Finding(code="RE106", what=f"{self._name} is gone", why="the job has ended")
                ) from error

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
        _check_connected()
        name = job or current_job()
        try:
            handle = ray.get_actor(cls.NAME, namespace=job_namespace(name))
        except ValueError:
            raise ClusterError(
                Finding(code="RE106", what=f"no job {name!r} is running", remedy=_running_text())
            ) from None
        return Proxy(handle, f"{cls.NAME} of job {name!r}")


class NodeManager(Manager):
    """Node layout, master address and port, and what the job holds."""

    NAME = "NodeManager"

    def __init__(self) -> None:
        self._layout: dict[str, Any] = {}
        self._held: dict[tuple[int, int], Any] = {}

    def set_layout(self, layout: Mapping[str, Any]) -> None:
        self._layout = dict(layout)

    def add_groups(self, groups: Mapping[str, Any]) -> None:
        self._layout["groups"] = {**self._layout["groups"], **groups}

    def get_layout(self) -> dict[str, Any]:
        return self._layout

    def get_nodes(self) -> list[Any]:
        """One `NodeInfo` for each, in order."""
        return list(self._layout.get("facts", ()))

    def get_master_ip(self) -> str:
        return str(self._layout["master_addr"])

    get_master_addr = get_master_ip

    def get_master_port(self) -> int:
        return int(self._layout["master_port"])

    def get_num_gpus_per_node(self) -> int:
        """Of the first node, as programs for equal nodes expect."""
        nodes = self._layout["nodes"]
        return int(nodes[0].accelerators.count) if nodes else 0

    def add_holdings(self, held: Mapping[tuple[int, int], Any]) -> None:
        """The accelerators the job has come to hold: (node, planned number) to what was granted."""
        self._held.update(held)

    def get_held(self) -> dict[tuple[int, int], Any]:
        return self._held

    def get_holdings(self) -> dict[str, list[Any]]:
        """The same by node id; other jobs ask this, and the rank of a node is ours alone."""
        by_node: dict[str, list[Any]] = {}
        for (rank, _), holding in self._held.items():
            by_node.setdefault(self._layout["facts"][rank].node_id, []).append(holding)
        return by_node


class WorkerManager(Manager):
    """Metadata and state of every worker."""

    NAME = "WorkerManager"

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, Any]] = {}

    def register_group(self, name: str, description: Mapping[str, Any]) -> None:
        self._groups[name] = {**description, "state": "running"}

    def get_group(self, name: str) -> dict[str, Any] | None:
        return self._groups.get(name) if isinstance(name, str) else None

    def list_groups(self) -> dict[str, dict[str, Any]]:
        return {
            name: {key: value for key, value in group.items() if key != "workers"}
            for name, group in self._groups.items()
        }

    def get_workers(self, name: str) -> list[Any]:
        return list(self._groups.get(name, {}).get("workers", ()))

    def remove_group(self, name: str) -> None:
        self._groups.pop(name, None)


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


def _check_connected() -> None:
    """Ray would start a new cluster of its own when asked without one."""
    if not ray.is_initialized():
        raise ClusterError(
            Finding(
                code="RE106",
                what="this process is not connected to a cluster",
                remedy="make a roost.Cluster first; Cluster() attaches to a running job",
            )
        )


def running_jobs() -> list[str]:
    """The jobs on the connected cluster."""
    _check_connected()
    prefix = f"{NAMESPACE}."
    named = ray.util.list_named_actors(all_namespaces=True)
    return sorted(
        entry["namespace"].removeprefix(prefix)
        for entry in named
        if entry["name"] == NodeManager.NAME and entry["namespace"].startswith(prefix)
    )


def is_running(job: str) -> bool:
    """Whether a job of this name runs, as opposed to having just ended."""
    try:
        handle = ray.get_actor(NodeManager.NAME, namespace=job_namespace(job))
        ray.get(handle.get_layout.remote(), timeout=5)
    except (ValueError, ray.exceptions.RayActorError):
        return False
    except ray.exceptions.GetTimeoutError:
        pass
    return True


def current_job() -> str:
    """This process's job: what a worker was told, else the only one running."""
    told = os.environ.get("ROOST_JOB")
    jobs = running_jobs()
    if told and (told in jobs or not jobs):
        return told
    if len(jobs) == 1:
        return jobs[0]
    what = "several jobs are running" if jobs else "no job is running"
    remedy = "name one: Cluster(job=...)" if jobs else "start one with Cluster(num_nodes=...)"
    raise ClusterError(Finding(code="RE106", what=what, why=_running_text(), remedy=remedy))


def _running_text() -> str:
    jobs = running_jobs()
    return f"running: {', '.join(jobs)}" if jobs else "none is running on this cluster"
