"""The inline twin: the same program in one process, without Ray, so that `pdb` and coverage work.

Ranks run one after the other, in rank order. Each sees its own environment while it runs.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from roost.engine.cluster import Cluster, Wanted, with_groups
from roost.engine.group import LaunchOrder, WorkerGroup, seat
from roost.engine.locks.inline_locks import InlineLocks
from roost.engine.locks.lock_table import LockTable
from roost.engine.ports.port_lease import PortLease
from roost.engine.ports.port_shelf import PortShelf
from roost.engine.position import Position
from roost.engine.processes.owner import Owner
from roost.engine.workers import environment
from roost.engine.workers.remote_errors import in_one_line
from roost.engine.workers.result import GroupResult
from roost.engine.workers.scatter import share_of
from roost.engine.workers.worker_context import _running_as
from roost.errors import ClusterError, Finding, LaunchError, nearest
from roost.inventory.inventory import Inventory

_current: InlineCluster | None = None
LOOPBACK = "127.0.0.1"


class InlineCluster(Cluster):
    def _attach(self, address: str | None, job: str | None) -> None:
        if _current is None:
            raise ClusterError(
                Finding(
                    code="RE106", what="no job is running", remedy="start one with Cluster(num_nodes=...)"
                )
            )
        self.__dict__ = _current.__dict__  # the same job, seen again

    def _create(self, wanted: Wanted) -> None:
        global _current
        shaped = "x" in wanted.shape
        inventory = Inventory.parse(wanted.shape) if shaped else Inventory.uniform(wanted.num_nodes or 1, 8)
        count = wanted.num_nodes or len(inventory.nodes)
        if len(inventory.nodes) < count:
            raise ClusterError(
                Finding(code="RE104", what=f"{len(inventory.nodes)} inline nodes, the job asks for {count}")
            )
        self.inventory = with_groups(inventory.limited(count), wanted.config, wanted.document)
        self.job = wanted.job or "inline"
        self.master_addr, self.master_port = LOOPBACK, 29500
        self._groups: dict[str, WorkerGroup] = {}
        self._ports = PortShelf()
        self._lock_tables: dict[int, LockTable] = {}
        self._open = True
        _current = self

    def _check_open(self) -> None:
        if not self._open:
            raise ClusterError(Finding(code="RE106", what=f"the cluster of job {self.job!r} was shut down"))

    def start_group(self, order: LaunchOrder) -> WorkerGroup:
        self._check_open()
        if order.name in self._groups:
            raise ClusterError(Finding(code="RE115", what=f"a group {order.name!r} is already running"))
        group = WorkerGroup(
            order.name, order.placements, order.methods, InlineMembers(self, order), owned=True
        )
        group._on_shutdown = lambda: self._forget(order.name)
        self._groups[order.name] = group
        return group

    def _forget(self, name: str) -> None:
        self._groups.pop(name, None)

    def attach_group(self, name: str) -> WorkerGroup:
        self._check_open()
        if not isinstance(name, str) or name not in self._groups:
            raise ClusterError(
                Finding(
                    code="RE116", what=f"no group {name!r} is running", remedy=nearest(name, self._groups)
                )
            )
        return self._groups[name]

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
        raise ClusterError(
            Finding(
                code="RE114",
                what="inline mode has no actors to allocate",
                why="allocate returns a Ray actor handle",
                remedy="use a Worker group, which runs inline too",
            )
        )

    def take_positions(
        self, count: int, nodes: Sequence[int], wanted: Sequence[tuple[int, int]] | None, timeout: float
    ) -> list[Position]:
        self._check_open()
        everything = [
            (node, device) for node in nodes for device in range(self.nodes[node].accelerators.count)
        ]
        return [
            Position(node=node, device=device, name=str(device))
            for node, device in (everything[:count] if wanted is None else wanted)
        ]

    def give_back_positions(self, positions: Sequence[Position]) -> None:
        pass  # nothing is held inline

    def lease_ports(
        self, node_rank: int, count: int = 1, consecutive: bool = False, timeout: float = 30.0
    ) -> PortLease:
        self._check_open()
        self.check_device(node_rank, None)
        owner = Owner()
        ports = self._ports.take(count, consecutive, owner)
        return PortLease(host=LOOPBACK, ports=ports, _give_back=partial(self._ports.release_owner, owner))

    def locks_on(self, node_rank: int) -> InlineLocks:
        self._check_open()
        return InlineLocks(self._lock_tables.setdefault(node_rank, LockTable()), str(self.nodes[node_rank]))

    def shutdown(self) -> None:
        global _current
        if self._open:
            self._open = False
            for group in list(self._groups.values()):
                group.shutdown()
            self._ports.close()
            if _current is not None and _current.__dict__ is self.__dict__:
                _current = None


class InlineMembers:
    def __init__(self, cluster: InlineCluster, order: LaunchOrder) -> None:
        self.name = order.name
        self._order, self._cluster = order, cluster
        self.seats = [seat(place, str(cluster.nodes[place.cluster_node_rank])) for place in order.placements]
        self._settings: dict[int, environment.RankSettings] = {}
        self._workers: dict[int, Any] = {}
        self.start(range(len(order.placements)))

    def start(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._start_rank(rank)

    def restart(self, ranks: Sequence[int], timeout: float) -> None:
        self.start(ranks)

    def end(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._workers.pop(rank, None)

    def _start_rank(self, rank: int) -> None:
        order, cluster, place = self._order, self._cluster, self._order.placements[rank]
        settings = environment.rank_settings(
            cluster.inventory,
            cluster.job,
            order.name,
            place,
            world_size=len(order.placements),
            share=order.shares[rank] if order.shares else None,
            master_addr=cluster.master_addr,
            master_port=cluster.master_port,
            device_names=place.visible_accelerators,
            node_paths=os.environ,
        )
        self._settings[rank] = settings
        try:
            with _as_rank(settings):
                self._workers[rank] = order.cls(
                    *[share_of(arg, rank) for arg in order.args],
                    **{key: share_of(arg, rank) for key, arg in order.kwargs.items()},
                )
        except Exception as error:
            raise LaunchError(
                Finding(
                    code="RE108",
                    what=f"{order.name} rank {rank} ({self.seats[rank]}) could not start",
                    why=in_one_line(error)[:500],
                )
            ) from error

    def submit(self, method: str, ranks: Sequence[int], args: Any, kwargs: Any) -> GroupResult:
        outcomes = []
        for position, rank in enumerate(ranks):
            mine = [share_of(arg, position) for arg in args]
            named = {key: share_of(arg, position) for key, arg in kwargs.items()}
            outcomes.append(self._run(rank, method, mine, named))
        return InlineResult(self.name, method, ranks, [self.seats[rank] for rank in ranks], outcomes)

    def _run(self, rank: int, method: str, args: Any, kwargs: Any) -> Outcome:
        began = time.perf_counter()
        with _as_rank(self._settings[rank]):
            try:
                value = getattr(self._workers[rank], method)(*args, **kwargs)
                if inspect.isawaitable(value):
                    value = _finish(value)
            except Exception as error:
                return Outcome(None, error, time.perf_counter() - began)
        return Outcome(value, None, time.perf_counter() - began)

    def stop(self) -> None:
        self._workers.clear()


def _finish(awaitable: Any) -> Any:
    """Run a coroutine to its end, also when the caller is itself inside an event loop."""

    async def body() -> Any:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(body())
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as other:  # a running loop cannot be entered again
        return other.submit(asyncio.run, body()).result()


@contextmanager
def _as_rank(settings: environment.RankSettings) -> Iterator[None]:
    saved = dict(os.environ)
    os.environ.update(settings.variables)
    try:
        with _running_as(settings.context):
            yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


class Outcome:
    __slots__ = ("error", "seconds", "value")

    def __init__(self, value: Any, error: Exception | None, seconds: float) -> None:
        self.value, self.error, self.seconds = value, error, seconds


class InlineResult(GroupResult):
    """Everything has already run; a failure is raised when it is waited for, as on Ray."""

    def __init__(
        self, group: str, method: str, ranks: Sequence[int], seats: Sequence[str], outcomes: Sequence[Outcome]
    ) -> None:
        super().__init__(group, method, ranks, seats)
        self._outcomes = list(outcomes)

    def wait(self, timeout: float | None = None) -> list[Any]:
        return [value for _, value in self.as_completed()]

    @property
    def done(self) -> bool:
        return True

    def as_completed(self, timeout: float | None = None) -> Iterator[tuple[int, Any]]:
        others = sum(outcome.error is not None for outcome in self._outcomes) - 1
        for position, outcome in enumerate(self._outcomes):
            if outcome.error is not None:
                trace = "".join(traceback.format_exception(outcome.error))
                raise self._raised(position, outcome.error, trace, others)
            yield self.ranks[position], outcome.value

    def durations(self, timeout: float | None = None) -> list[float]:
        return [outcome.seconds for outcome in self._outcomes]

    def __await__(self) -> Generator[Any, None, list[Any]]:
        async def now() -> list[Any]:
            return self.wait()

        return now().__await__()
