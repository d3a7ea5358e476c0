"""Starting the processes of a group on Ray, and calling them."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from roost.engine import environment
from roost.engine.calls import RayResult, cause_of, forget_abandoned, once, sweep
from roost.engine.connection import answer, job_namespace, named
from roost.engine.discovery import on_node
from roost.engine.group import LaunchOrder, seat
from roost.engine.host import AsyncHost, Host, StartOrder, WhereItIs, is_async
from roost.engine.result import GroupResult
from roost.engine.scatter import share_of
from roost.engine.worker import WorkerContext
from roost.errors import Finding, LaunchError, WorkerError
from roost.inventory.accelerators import accelerator_kind
from roost.inventory.nodes import Node
from roost.placement.placement import Placement

if TYPE_CHECKING:
    from roost.engine.live import LiveCluster


def start_members(cluster: LiveCluster, order: LaunchOrder) -> RayMembers:
    """All ranks, or none: what was started is taken down again when any rank fails."""
    cluster.reservation.ensure(accelerators_of(cluster, order.placements))
    leader = cluster.node(order.placements[0].cluster_node_rank)
    port = answer(leader.agent.lease_ports.remote(1), f"leasing a port for {order.name!r}")[0]
    members = RayMembers(order.name, order.placements, cluster.nodes, leader.facts.ip, port, leader.agent)
    cluster.starting.append(members)
    try:
        members.start(cluster, order)
    except BaseException:
        members.stop()
        raise
    finally:
        cluster.starting.remove(members)
    return members


def accelerators_of(cluster: LiveCluster, placements: Sequence[Placement]) -> dict[int, set[int]]:
    """The accelerators these placements hold, by node. Robots and bare nodes are not Ray's to give."""
    needs: dict[int, set[int]] = {}
    for placement in placements:
        if holds_accelerators(cluster, placement):
            needs.setdefault(placement.cluster_node_rank, set()).update(placement.hardware)
    return needs


def holds_accelerators(cluster: LiveCluster, placement: Placement) -> bool:
    group = cluster.inventory.groups.get(placement.node_group_label)
    return bool(placement.hardware) and not (group is not None and group.hardware_type)


class RayMembers:
    """The actors of a group."""

    def __init__(
        self,
        name: str,
        placements: Sequence[Placement],
        nodes: Sequence[Node],
        master_addr: str,
        master_port: int,
        port_holder: Any = None,
        handles: Sequence[Any] = (),
    ) -> None:
        self.name = name
        self.master_addr, self.master_port = master_addr, master_port
        self._port_holder = port_holder
        self._seats = [seat(placement, str(nodes[placement.cluster_node_rank])) for placement in placements]
        self._handles = list(handles)
        self.found: list[WhereItIs] = []

    @classmethod
    def attached(cls, name: str, description: Mapping[str, Any], nodes: Sequence[Node]) -> RayMembers:
        return cls(
            name,
            description["placements"],
            nodes,
            description["master_addr"],
            description["master_port"],
            handles=description["workers"],
        )

    def description(self, order: LaunchOrder) -> dict[str, Any]:
        """What another process needs to find this group."""
        return {
            "placements": list(order.placements),
            "methods": sorted(order.methods),
            "master_addr": self.master_addr,
            "master_port": self.master_port,
            "workers": list(self._handles),
            "pids": [found.pid for found in self.found],
        }

    # -- starting ------------------------------------------------------------------------------------

    def start(self, cluster: LiveCluster, order: LaunchOrder) -> None:
        program = ray.put(_pickled(order))
        defaults = environment.passed_on(os.environ)
        actor = ray.remote(num_cpus=0)(AsyncHost if is_async(order.cls) else Host)
        started, expected = [], []
        for placement in order.placements:
            names = self._device_names(cluster, placement)
            setting = cluster.inventory.environment(placement.node_group_label, placement.cluster_node_rank)
            facts = cluster.node(placement.cluster_node_rank).facts
            configured = environment.configured_variables(setting, dict(facts.search_paths))
            variables = environment.worker_variables(
                placement,
                world_size=len(order.placements),
                master_addr=self.master_addr,
                master_port=self.master_port,
                group=order.name,
                job=cluster.job,
                device_names=names,
            )
            options: dict[str, Any] = {
                "name": f"{order.name}:{placement.rank}",
                "namespace": job_namespace(cluster.job),
                "scheduling_strategy": self._where_to(cluster, placement),
            }
            wanted = environment.runtime_env(configured, setting.python_interpreter_path)
            if wanted:
                options["runtime_env"] = wanted
            title = f"{order.name}:{placement.rank}"
            try:
                handle = named(partial(actor.options(**options).remote, title))
            except ValueError as error:
                raise LaunchError(
                    Finding(
                        code="RE115",
                        what=f"an actor named {title!r} exists already",
                        why=str(error).splitlines()[0][:200],
                        remedy="launch the group under another name",
                    )
                ) from None
            self._handles.append(handle)
            context = WorkerContext(
                group=order.name,
                job=cluster.job,
                placement=placement,
                world_size=len(order.placements),
                master_addr=self.master_addr,
                master_port=self.master_port,
                node=str(cluster.nodes[placement.cluster_node_rank]),
                devices=tuple(names),
            )
            visible = accelerator_kind(placement.accelerator_type).visible_variable if names else None
            start = StartOrder(
                context=context,
                variables={**configured, **variables},
                defaults=defaults,
                module_paths=tuple(path for path in sys.path if path),
            )
            started.append(handle.start.remote(start, program, visible))
            expected.append((facts.node_id, variables.get(visible) if visible else None))
        self.found = self._gather_started(started, order)
        self._verify(expected, cluster)

    def _device_names(self, cluster: LiveCluster, placement: Placement) -> list[str]:
        """What the process may see, by the accelerators' real names."""
        node = placement.cluster_node_rank
        if holds_accelerators(cluster, placement) and placement.isolate_accelerator:
            return cluster.reservation.device_names(node, placement.hardware)
        return [cluster.node(node).facts.device_names[int(number)] for number in placement.visible]

    def _where_to(self, cluster: LiveCluster, placement: Placement) -> Any:
        node = placement.cluster_node_rank
        if not holds_accelerators(cluster, placement):
            return on_node(cluster.node(node).node_id)
        bundle = cluster.reservation.bundle_for(node, placement.hardware)
        assert bundle is not None
        return PlacementGroupSchedulingStrategy(
            bundle[0], placement_group_bundle_index=bundle[1], placement_group_capture_child_tasks=True
        )

    def _gather_started(self, started: Sequence[Any], order: LaunchOrder) -> list[WhereItIs]:
        deadline = time.monotonic() + order.timeout
        waiting = list(started)
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1, timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                late = [self._seat_text(started.index(ref)) for ref in waiting]
                raise LaunchError(
                    Finding(
                        code="RE108",
                        what=f"{len(late)} of {len(started)} workers of {order.name!r} did not start in {order.timeout:g} s",
                        why=f"still starting: {'; '.join(late[:4])}",
                        remedy="a constructor may be blocked: launch with a longer timeout, or look at the worker's log",
                    )
                )
            for ref in ready:
                try:
                    ray.get(ref)
                except ray.exceptions.RayError as error:
                    raise self._failed_start(started.index(ref), error, order) from cause_of(error)
        return ray.get(list(started))

    def _seat_text(self, position: int) -> str:
        return f"rank {position} ({self._seats[position]})"

    def _failed_start(self, position: int, error: Any, order: LaunchOrder) -> LaunchError:
        cause = cause_of(error)
        if cause is not None:
            why = f"{type(cause).__name__}: {cause}"
        else:
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return LaunchError(
            Finding(
                code="RE108",
                what=f"{order.name} {self._seat_text(position)} could not start; the whole group was taken down",
                why=why[:500],
                remedy=""
                if cause is not None
                else "the process ended while starting: its log has the reason",
            )
        )

    def _verify(self, expected: Sequence[tuple[str, str | None]], cluster: LiveCluster) -> None:
        ranks = {node.node_id: rank for rank, node in enumerate(cluster._live)}
        wrong = []
        for position, (found, (node_id, visible)) in enumerate(zip(self.found, expected, strict=True)):
            if found.node_id != node_id:
                where = f"on node {ranks.get(found.node_id, 'outside the job')}"
                wrong.append(f"{self._seat_text(position)} is {where}")
            elif visible is not None and found.visible != visible:
                wrong.append(f"{self._seat_text(position)} sees {found.visible!r} instead of {visible!r}")
        if wrong:
            raise LaunchError(
                Finding(
                    code="RE109",
                    what=f"{len(wrong)} workers of {self.name!r} are not where they should be",
                    why="; ".join(wrong[:4]),
                    remedy="does the worker's module or constructor change the visible devices?",
                )
            )

    # -- calling -------------------------------------------------------------------------------------

    def submit(self, method: str, ranks: Sequence[int], args: Any, kwargs: Any) -> GroupResult:
        sweep()
        args = [once(arg) for arg in args]
        kwargs = {key: once(arg) for key, arg in kwargs.items()}
        try:
            refs = [
                self._handles[rank].call.remote(
                    method,
                    *[share_of(arg, position) for arg in args],
                    **{key: share_of(arg, position) for key, arg in kwargs.items()},
                )
                for position, rank in enumerate(ranks)
            ]
        except (TypeError, ValueError, pickle.PicklingError) as error:
            raise WorkerError(
                Finding(
                    code="RE113",
                    what=f"{self.name}.{method}: an argument cannot be sent to the workers",
                    why=(str(error).strip().splitlines() or [type(error).__name__])[0][:300],
                    remedy="pass plain data, or make it in the worker",
                )
            ) from error
        return RayResult(self.name, method, ranks, [self._seats[rank] for rank in ranks], refs)

    def stop(self) -> None:
        handles, self._handles = self._handles, []
        if not ray.is_initialized():
            forget_abandoned()
            return
        sweep()
        for handle in handles:
            ray.kill(handle)
        if self._port_holder is not None:
            self._port_holder.release_ports.remote([self.master_port])
            self._port_holder = None


def _pickled(order: LaunchOrder) -> bytes:
    try:
        return cloudpickle.dumps((order.cls, order.args, order.kwargs))
    except Exception as error:
        raise LaunchError(
            Finding(
                code="RE108",
                what=f"{order.name}: the worker class or its arguments cannot be sent to other processes",
                why=f"{type(error).__name__}: {error}"[:300],
                remedy="open files, locks and connections are made in the worker, not passed to it",
            )
        ) from error
