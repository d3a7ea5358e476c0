"""Starting ranks of a group on Ray, and checking that each is where it should be."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from roost.engine.calls import cause_of
from roost.engine.connection.discovery import on_node
from roost.engine.connection.ray_connection import job_namespace, named
from roost.engine.group import LaunchOrder, seat
from roost.engine.host import AsyncHost, Host, StartOrder, WhereItIs, is_async
from roost.engine.workers import environment
from roost.engine.workers.remote_errors import first_line, in_one_line
from roost.errors import Finding, LaunchError
from roost.inventory.accelerators import accelerator_kind
from roost.placement.placement import Placement

if TYPE_CHECKING:
    from roost.engine.live import LiveCluster


@dataclass(slots=True)
class Launch:
    """One order on one cluster; ranks of it can be started again, each where it was."""

    cluster: LiveCluster
    order: LaunchOrder
    master_addr: str
    master_port: int
    program: Any  # reference to the pickled class and arguments
    actor: Any

    @classmethod
    def prepare(cls, cluster: LiveCluster, order: LaunchOrder, master_addr: str, master_port: int) -> Launch:
        actor = ray.remote(num_cpus=0)(AsyncHost if is_async(order.cls) else Host)
        return cls(cluster, order, master_addr, master_port, ray.put(_pickled(order)), actor)

    def start(self, ranks: Sequence[int], handles: dict[int, Any], timeout: float) -> dict[int, WhereItIs]:
        """Start these ranks together. Their handles are put in as they come, so that they can be ended."""
        defaults = environment.passed_on(os.environ)
        started: dict[int, Any] = {}
        expected: dict[int, tuple[str, str | None]] = {}
        for rank in ranks:
            placement = self.order.placements[rank]
            node = self.cluster.node(placement.cluster_node_rank)
            settings = environment.rank_settings(
                self.cluster.inventory,
                self.cluster.job,
                self.order.name,
                placement,
                world_size=len(self.order.placements),
                share=self.order.shares[rank] if self.order.shares else None,
                master_addr=self.master_addr,
                master_port=self.master_port,
                device_names=_device_names(self.cluster, placement),
                node_paths=dict(node.facts.search_paths),
            )
            handle = handles[rank] = self._create(placement, settings)
            devices = settings.context.devices
            visible = accelerator_kind(placement.accelerator_type).visible_variable if devices else None
            start = StartOrder(
                context=settings.context,
                variables=settings.variables,
                defaults=defaults,
                module_paths=tuple(path for path in sys.path if path),
            )
            started[rank] = handle.start.remote(start, self.program, visible)
            expected[rank] = (node.node_id, settings.placed.get(visible) if visible else None)
        found = self._gather(started, timeout)
        self._verify(found, expected)
        return found

    def _create(self, placement: Placement, settings: environment.RankSettings) -> Any:
        title = f"{self.order.name}:{placement.rank}"
        options: dict[str, Any] = {
            "name": title,
            "namespace": job_namespace(self.cluster.job),
            "scheduling_strategy": _where_to(self.cluster, placement),
        }
        wanted = environment.runtime_env(settings.configured, settings.interpreter)
        if wanted:
            options["runtime_env"] = wanted
        try:
            return named(partial(self.actor.options(**options).remote, title))
        except ValueError as error:
            raise LaunchError(
                Finding(
                    code="RE115",
                    what=f"an actor named {title!r} exists already",
                    why=first_line(error, 200),
                    remedy="launch the group under another name",
                )
            ) from None

    def _gather(self, started: Mapping[int, Any], timeout: float) -> dict[int, WhereItIs]:
        deadline = time.monotonic() + timeout
        rank_of = {ref: rank for rank, ref in started.items()}
        waiting = list(started.values())
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1, timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                late = [self._seat_text(rank_of[ref]) for ref in waiting]
                raise LaunchError(
                    Finding(
                        code="RE108",
                        what=f"{len(late)} of {len(started)} workers of {self.order.name!r} did not start in {timeout:g} s",
                        why=f"still starting: {'; '.join(late[:4])}",
                        remedy="a constructor may be blocked: launch with a longer timeout, or look at the worker's log",
                    )
                )
            for ref in ready:
                try:
                    ray.get(ref)
                except ray.exceptions.RayError as error:
                    raise self._failed(rank_of[ref], len(started), error) from cause_of(error)
        return dict(zip(started, ray.get(list(started.values())), strict=True))

    def _seat_text(self, rank: int) -> str:
        placement = self.order.placements[rank]
        return f"rank {rank} ({seat(placement, str(self.cluster.nodes[placement.cluster_node_rank]))})"

    def _failed(self, rank: int, starting: int, error: Any) -> LaunchError:
        cause = cause_of(error)
        alone = starting < len(self.order.placements)
        then = "the other ranks go on" if alone else "the whole group was taken down"
        if cause is not None:
            why = in_one_line(cause)
        else:
            why = first_line(error, 500)
        return LaunchError(
            Finding(
                code="RE108",
                what=f"{self.order.name} {self._seat_text(rank)} could not start; {then}",
                why=why[:500],
                remedy=""
                if cause is not None
                else "the process ended while starting: its log has the reason",
            )
        )

    def _verify(self, found: Mapping[int, WhereItIs], expected: Mapping[int, tuple[str, str | None]]) -> None:
        ranks = {info.node_id: rank for rank, info in enumerate(self.cluster.node_infos)}
        wrong = []
        for rank, (node_id, visible) in expected.items():
            if found[rank].node_id != node_id:
                where = f"on node {ranks.get(found[rank].node_id, 'outside the job')}"
                wrong.append(f"{self._seat_text(rank)} is {where}")
            elif visible is not None and found[rank].visible != visible:
                wrong.append(f"{self._seat_text(rank)} sees {found[rank].visible!r} instead of {visible!r}")
        if wrong:
            raise LaunchError(
                Finding(
                    code="RE109",
                    what=f"{len(wrong)} workers of {self.order.name!r} are not where they should be",
                    why="; ".join(wrong[:4]),
                    remedy="does the worker's module or constructor change the visible devices?",
                )
            )


def accelerators_of(cluster: LiveCluster, placements: Sequence[Placement]) -> dict[int, set[int]]:
    """The accelerators these placements hold, by node. Robots and bare nodes are not Ray's to give."""
    needs: dict[int, set[int]] = {}
    for placement in placements:
        if _holds_accelerators(cluster, placement):
            needs.setdefault(placement.cluster_node_rank, set()).update(placement.hardware)
    return needs


def _holds_accelerators(cluster: LiveCluster, placement: Placement) -> bool:
    group = cluster.inventory.groups.get(placement.node_group_label)
    return bool(placement.hardware) and not (group is not None and group.hardware_type)


def _device_names(cluster: LiveCluster, placement: Placement) -> list[str]:
    """What the process may see, by the accelerators' real names."""
    node = placement.cluster_node_rank
    if _holds_accelerators(cluster, placement) and placement.isolate_accelerator:
        return cluster.reservation.device_names(node, placement.hardware)
    return [cluster.node(node).facts.device_names[int(number)] for number in placement.visible]


def _where_to(cluster: LiveCluster, placement: Placement) -> Any:
    node = placement.cluster_node_rank
    if not _holds_accelerators(cluster, placement):
        return on_node(cluster.node(node).node_id)
    bundle = cluster.reservation.bundle_for(node, placement.hardware)
    assert bundle is not None
    return PlacementGroupSchedulingStrategy(
        bundle[0], placement_group_bundle_index=bundle[1], placement_group_capture_child_tasks=True
    )


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
