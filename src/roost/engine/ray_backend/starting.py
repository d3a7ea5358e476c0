"""Starting processes of groups on Ray, and checking that each is where it should be."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from roost.engine.backend import GroupOrder, Progress, Report
from roost.engine.connection.actors import answer, create_named, job_namespace, on_node
from roost.engine.connection.cluster_watch import check_head, cluster_is_gone, patient_wait
from roost.engine.connection.discovery import LiveNode
from roost.engine.job.open_jobs import order_against
from roost.engine.job.worker_watch import Loss, WatchedWorker
from roost.engine.launch_orders import UNDER_ANOTHER_NAME
from roost.engine.processes.process_facts import Owner, Process
from roost.engine.ray_backend.ray_result import cause_of, traced_cause
from roost.engine.ray_backend.worker_host import StartOrder, StartReport, actor_for
from roost.engine.reservation.reservation import Reservation
from roost.engine.workers import environment
from roost.engine.workers.remote_errors import first_line, in_one_line
from roost.engine.workers.worker_context import seat_of
from roost.errors import LaunchError, RoostError
from roost.inventory.accelerators import accelerator_kind
from roost.inventory.inventory import Inventory
from roost.placement.placement import Placement
from roost.planning.plan import Plan

PROGRAM_WITHIN = 30.0  # seconds; it lies on this node
_PID = re.compile(r"\bpid: ([1-9][0-9]*)")
_EXIT_CODE = re.compile(r"\bexit code ([0-9]{1,3})\b")
_EXIT_DETAIL = re.compile(r"Worker exit detail: (.+?)(?:\.\s|\.?$)", re.MULTILINE)
LOSS_WITHIN = 5.0  # seconds in which an agent reads the end of a log
_IN_USE = re.compile(r"EADDRINUSE|[Aa]ddress already in use")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a job's processes are started."""

    job: str
    live: Sequence[LiveNode]
    reservation: Reservation

    def device_names(self, placement: Placement) -> list[str]:
        """What the process may see, by the accelerators' real names."""
        node = placement.cluster_node_rank
        if placement.holds_accelerators and placement.isolate_accelerator:
            return self.reservation.device_names(node, placement.hardware)
        return [self.live[node].facts.device_names[int(number)] for number in placement.visible]

    def scheduling(self, placement: Placement) -> Any:
        """How Ray is told the node of a process; robots and bare nodes are not Ray's to reserve."""
        node = placement.cluster_node_rank
        if not placement.holds_accelerators:
            return on_node(self.live[node].node_id)
        group, index = self.reservation.held[node, placement.hardware[0]].bundle
        return PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=index, placement_group_capture_child_tasks=True
        )


@dataclass(frozen=True, slots=True)
class _Expected:
    node_id: str
    visible: str | None


@dataclass(slots=True, kw_only=True, eq=False)
class GroupStart:
    """What starts the processes of one group; each rank can be started again where it was."""

    site: Site
    inventory: Inventory  # of the plan: its node groups say the environments
    order: GroupOrder
    leader: LiveNode  # the node of rank 0, where the port is leased
    port_owner: Owner
    master_port: int
    history: Any = None  # the manager that keeps events
    plan: str = ""  # the digest of the plan that was launched
    program: Any = None  # reference to the pickled class and arguments
    actor: Any = None
    generations: dict[int, int] = field(default_factory=dict)
    _expected: dict[int, _Expected] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.actor = actor_for(self.order.worker.cls, self.order.worker.methods)
        self.program = ray.put(_pickled(self.order))

    @property
    def master_addr(self) -> str:
        return self.leader.facts.ip

    def release_port(self) -> None:
        self.leader.agent.release_lease.remote(self.port_owner)

    def renew_program(self) -> None:
        """A new copy, of which this node alone has any: Ray waits 10 s for each copy that it seeks on a lost node."""
        self.program = ray.put(ray.get(self.program, timeout=PROGRAM_WITHIN))

    def lease_again(self) -> None:
        """Rank 0 has moved to another node: processes that start from now on meet there."""
        self.leader = self.site.live[self.order.placements[0].cluster_node_rank]
        asked = self.leader.agent.lease_ports.remote(1, False, self.port_owner)
        (self.master_port,) = answer(asked, "leasing a port for rank 0")

    def begin(
        self, ranks: Sequence[int], handles: dict[int, Any], wanted: Callable[[], bool]
    ) -> dict[Any, int]:
        """Create these ranks' processes and tell each who it is. Returns what to wait for.

        The handles are put in as they come, so that they can be ended. Once the group is not `wanted` any more, since
        another thread shuts it down, no further process is started.
        """
        defaults, paths = environment.passed_on(os.environ), tuple(path for path in sys.path if path)
        started: dict[Any, int] = {}
        for rank in ranks:
            if not wanted():
                raise was_shut_down(self.order.name)
            placement = self.order.placements[rank]
            settings = self._settings(placement)
            handle = handles[rank] = self._create(placement, settings)
            devices = settings.context.devices
            visible = accelerator_kind(placement.accelerator_type).visible_variable if devices else None
            order = StartOrder(
                context=settings.context,
                variables=settings.variables,
                defaults=defaults,
                module_paths=paths,
                ping=self.order.policy.ping,
            )
            started[handle._roost_start.remote(order, self.program, visible)] = rank
            node_id = self.site.live[placement.cluster_node_rank].node_id
            self._expected[rank] = _Expected(node_id, settings.placed.get(visible) if visible else None)
            self.generations[rank] = settings.context.generation
        return started

    def _settings(self, placement: Placement) -> environment.RankSettings:
        order = self.order
        return environment.rank_settings(
            self.inventory,
            self.site.job,
            order.name,
            placement,
            world_size=len(order.placements),
            share=order.shares[placement.rank] if order.shares else None,
            master_addr=self.master_addr,
            master_port=self.master_port,
            device_names=self.site.device_names(placement),
            node_paths=dict(self.site.live[placement.cluster_node_rank].facts.search_paths),
            generation=self.generations.get(placement.rank, -1) + 1,
        )

    def _create(self, placement: Placement, settings: environment.RankSettings) -> Any:
        title = settings.context.name
        options: dict[str, Any] = {
            "name": title,
            "namespace": job_namespace(self.site.job),
            "scheduling_strategy": self.site.scheduling(placement),
        }
        wanted = environment.runtime_env(settings.configured, settings.interpreter)
        if wanted:
            options["runtime_env"] = wanted
        create = partial(self.actor.options(**options).remote, title)
        return create_named(create, title, LaunchError, UNDER_ANOTHER_NAME)

    def seat_text(self, rank: int) -> str:
        placement = self.order.placements[rank]
        return f"rank {rank} ({seat_of(placement, str(self.inventory.nodes[placement.cluster_node_rank]))})"

    def misplaced(self, reports: Mapping[int, StartReport]) -> list[str]:
        """Those of the processes that are not where the plan has them."""
        ranks = {node.node_id: rank for rank, node in enumerate(self.site.live)}
        wrong = []
        for rank, found in reports.items():
            expected = self._expected[rank]
            if found.node_id != expected.node_id:
                wrong.append(
                    f"{self.seat_text(rank)} is on node {ranks.get(found.node_id, 'outside the job')}"
                )
            elif expected.visible is not None and found.visible != expected.visible:
                wrong.append(f"{self.seat_text(rank)} sees {found.visible!r} instead of {expected.visible!r}")
        return wrong


def group_starts(site: Site, plan: Plan, orders: Sequence[GroupOrder], history: Any) -> list[GroupStart]:
    """What starts each group. Each has a leased port; if one cannot be made, no port stays leased.

    The ports are leased before any rank starts, so that none has to wait for rank 0 to say where to meet.
    """
    leaders = [site.live[order.placements[0].cluster_node_rank] for order in orders]
    owners = [Owner(who=f"job {site.job!r}") for _ in orders]
    try:
        asked = [
            leader.agent.lease_ports.remote(1, False, owner)
            for leader, owner in zip(leaders, owners, strict=True)
        ]
        leased = answer(asked, "leasing ports for the groups")
        return [
            GroupStart(
                site=site,
                inventory=plan.inventory,
                order=order,
                leader=leader,
                port_owner=owner,
                master_port=port,
                history=history,
                plan=plan.digest,
            )
            for order, leader, owner, (port,) in zip(orders, leaders, owners, leased, strict=True)
        ]
    except BaseException:
        if ray.is_initialized() and not cluster_is_gone():
            for leader, owner in zip(leaders, owners, strict=True):
                leader.agent.withdraw_lease.remote(owner)
        raise


def gathered(
    starts: Mapping[Any, tuple[GroupStart, int]], timeout: float, aftermath: str, report: Report
) -> dict[GroupStart, dict[int, StartReport]]:
    """Wait for every process, and check that each is where it should be.

    Returns what each rank reports. `aftermath` says in errors what becomes of the rest.
    """
    reports: dict[GroupStart, dict[int, StartReport]] = {start: {} for start, _ in starts.values()}
    deadline = time.monotonic() + timeout
    waiting, ready_count = list(starts), 0
    job = next((start.site.job for start in reports), "")
    while waiting:
        left = max(0.0, deadline - time.monotonic())
        ready, waiting = patient_wait(waiting, left, job=job)
        if not ready:
            raise _late([starts[ref] for ref in waiting], len(starts), timeout)
        for ref in ready:
            start, rank = starts[ref]
            try:
                reports[start][rank] = ray.get(ref)
            except ray.exceptions.RayError as error:
                raise _failed(start, rank, error, aftermath) from traced_cause(error)
            ready_count += 1
            report(Progress(phase="ready", done=ready_count, total=len(starts)))
    for start, found in reports.items():
        if wrong := start.misplaced(found):
            raise LaunchError(
                code="RE109",
                what=f"{len(wrong)} workers of {start.order.name!r} are not where they should be",
                why="; ".join(wrong[:4]),
                remedy="does the worker's module or constructor change the visible devices?",
            )
    report(Progress(phase="verified", done=len(starts), total=len(starts)))
    return reports


def was_shut_down(name: str) -> LaunchError:
    return LaunchError(code="RE108", what=f"{name} was shut down while it started")


def _late(late: Sequence[tuple[GroupStart, int]], total: int, timeout: float) -> LaunchError:
    names = sorted({start.order.name for start, _ in late})
    shown = [
        f"{start.order.name} {start.seat_text(rank)}" if len(names) > 1 else start.seat_text(rank)
        for start, rank in late[:4]
    ]
    of = " and ".join(repr(name) for name in names) if len(names) < 4 else f"{len(names)} groups"
    return LaunchError(
        code="RE108",
        what=f"{len(late)} of {total} workers of {of} did not start in {timeout:g} s",
        why=f"still starting: {'; '.join(shown)}",
        remedy="a constructor may be blocked: launch with a longer timeout, or look at the worker's log",
    )


def _failed(start: GroupStart, rank: int, error: Any, aftermath: str) -> RoostError:
    cause = cause_of(error)
    if cause is None:
        check_head()
        if (taken_down := order_against(start.site.job)) is not None:
            return taken_down
    why = in_one_line(cause)[:500] if cause is not None else first_line(error, 500)
    # Rank 0 may listen there as it should, while another rank fails at a port of its own.
    meant = rank == 0 or re.search(rf"\b{start.master_port}\b", why)
    if meant and _IN_USE.search(why) and _listens(start.master_addr, start.master_port):
        remedy = (
            f"something listens on port {start.master_port} of {start.master_addr}, which was leased for this group: "
            f"end it (`ss -ltnp sport = :{start.master_port}` shows it there), or launch again with a new lease"
        )
    elif cause is not None:
        remedy = ""
    else:
        why = _how_it_ended(start, rank, error) or why
        remedy = "the process ended while starting: look at its log, its constructor and what that imports"
    return LaunchError(
        code="RE108",
        what=f"{start.order.name} {start.seat_text(rank)} could not start; {aftermath}",
        why=why,
        remedy=remedy,
    )


def _how_it_ended(start: GroupStart, rank: int, error: Any) -> str:
    """How a process ended that has reported nothing yet, by what Ray says and what it logged."""
    text = str(error)
    pid, code, detail = _PID.search(text), _EXIT_CODE.search(text), _EXIT_DETAIL.search(text)
    if pid is None:
        return ""
    node = start.order.placements[rank].cluster_node_rank
    process = Process(pid=int(pid[1]), started=0)
    worker = WatchedWorker(process=process, group=start.order.name, rank=rank, generation=0, node=node)
    try:
        asked = start.site.live[node].agent.loss_at_start.remote(worker, int(code[1]) if code else None)
        loss: Loss = ray.get(asked, timeout=LOSS_WITHIN)
    except ray.exceptions.RayError:  # its node may be gone
        loss = Loss(kind="ended", status=int(code[1]) << 8 if code else None)
    if loss.status is None and detail is None:
        return ""
    how = loss.how if loss.status is not None or detail is None else f"ended, and Ray says: {detail[1]}"
    return "; ".join(filter(None, [f"pid {pid[1]} {how}", loss.last_words]))


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def _pickled(order: GroupOrder) -> bytes:
    try:
        return cloudpickle.dumps((order.worker.cls, order.worker.args, order.worker.kwargs))
    except Exception as error:
        raise LaunchError(
            code="RE108",
            what=f"{order.name}: the worker class or its arguments cannot be sent to other processes",
            why=f"{type(error).__name__}: {error}"[:300],
            remedy="open files, locks and connections are made in the worker, not passed to it",
        ) from error
