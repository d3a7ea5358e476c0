"""The engines of one group of a layout: their ranks, their contexts, their health, and errors about them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roost.engine.group import GroupView, WorkerGroup
from roost.engine.workers.arguments import scatter
from roost.engine.workers.remote_errors import in_one_line
from roost.engine.workers.result import GroupResult
from roost.errors import CallTimeout, Finding, LaunchError, RoostError, WorkerDied, WorkerError
from roost.planning.component_plan import Engines
from roost.rl.addresses import Address
from roost.rl.engine import EngineContext, EngineSeat
from roost.rl.server_process import ServerFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address at which an engine serves."""

    url: str
    server: str
    kind: str
    host: str
    port: int
    engine: int | None = None  # its number in its group; None for an external engine
    bootstrap_port: int | None = None  # of a prefill engine


class RunningEngines:
    """Engines of one kind and width, `processes` processes each, in rank order. A placeholder has none."""

    def __init__(self, component: str, engines: Engines, workers: WorkerGroup | None) -> None:
        self.component, self.server, self.kind = component, engines.server, engines.kind
        self.processes = engines.processes
        self.workers = workers
        self.contexts: dict[int, EngineContext] = {}  # by rank, of processes that are up

    @property
    def world_size(self) -> int:
        return 0 if self.workers is None else len(self.workers)

    def __len__(self) -> int:
        return self.world_size // self.processes

    def ranks(self, engine: int) -> range:
        return range(engine * self.processes, (engine + 1) * self.processes)

    def up(self) -> list[int]:
        """The engines whose processes have all started."""
        return [one for one in range(len(self)) if all(rank in self.contexts for rank in self.ranks(one))]

    def forget(self, engine: int) -> None:
        """Mark the engine as not up, until it is brought up again."""
        for rank in self.ranks(engine):
            self.contexts.pop(rank, None)

    def call(self, method: str) -> GroupResult:
        """Call a method on every process that is up."""
        result: GroupResult = getattr(self._on(sorted(self.contexts)), method)()
        return result

    def take_seats(self, ranks: Sequence[int], dist_init_ports: int) -> GroupResult:
        """Make each process lease ports on its node."""
        first = [rank % self.processes == 0 for rank in ranks]
        return self._on(ranks)._take_seat(scatter(first), self.kind, dist_init_ports)

    def bring_up(self, ranks: Sequence[int], seats: Sequence[EngineSeat]) -> GroupResult:
        """Give each process its context, and start it."""
        contexts = engine_contexts(ranks, seats, self.processes, server=self.server, kind=self.kind)
        return self._on(ranks)._bring_up(scatter(contexts))

    def _on(self, ranks: Sequence[int]) -> GroupView:
        assert self.workers is not None
        return self.workers.execute_on(*ranks)

    def seat(self, rank: int) -> str:
        """The node and devices of a process, in words."""
        assert self.workers is not None
        return self.workers._seat(rank)

    def ask_health(self) -> dict[int, GroupResult]:
        """Ask every process that is up for its health, without waiting."""
        return {rank: self._on([rank]).healthy() for rank in sorted(self.contexts)}

    def healthy(self, asked: Mapping[int, GroupResult], deadline: float) -> list[bool | None]:
        """The health of each engine: False if one of its processes cannot serve or is not up, None if one is silent."""
        answers = {rank: _is_healthy(result, deadline) for rank, result in asked.items()}
        found: list[bool | None] = []
        for engine in range(len(self)):
            said = [answers.get(rank, False) for rank in self.ranks(engine)]
            found.append(False if False in said else None if None in said else True)
        return found

    def endpoint(self, engine: int) -> Endpoint:
        context = self.contexts[self.ranks(engine)[0]]
        return Endpoint(
            url=context.url,
            server=self.server,
            kind=self.kind,
            host=context.host,
            port=context.port,
            engine=engine,
            bootstrap_port=context.bootstrap_port,
        )

    def __repr__(self) -> str:
        return f"<{len(self)} {self.kind} engines of {self.component}>"


def _is_healthy(result: GroupResult, deadline: float) -> bool | None:
    try:
        return bool(result.wait(left(deadline))[0])
    except CallTimeout:
        return None  # it hangs, or is in the middle of another call
    except WorkerError:
        return False  # it died, or its own check failed


def engine_contexts(
    ranks: Sequence[int], seats: Sequence[EngineSeat], processes: int, *, server: str, kind: str
) -> list[EngineContext]:
    """The context of each of these ranks of a group, which must be whole engines, in order.

    Every group counts its own ranks, so an engine's first process does not depend on earlier groups.
    """
    contexts = []
    for position, rank in enumerate(ranks):
        index, node_rank = divmod(rank, processes)
        first = seats[position - node_rank]
        contexts.append(
            EngineContext(
                server=server,
                kind=kind,
                index=index,
                node_rank=node_rank,
                num_nodes=processes,
                host=seats[position].host,
                port=seats[position].port,
                nccl_port=seats[position].nccl_port,
                dist_init_addr=str(Address(first.host, first.dist_init_ports[0])),
                dist_init_ports=first.dist_init_ports,
                bootstrap_port=first.bootstrap_port,
            )
        )
    return contexts


def left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def stop_all(groups: Iterable[WorkerGroup], deadline: float) -> None:
    """Ask the workers of these groups to stop, and wait for them until the deadline."""
    for result in [group.stop() for group in groups if group.is_running]:
        with contextlib.suppress(WorkerError):
            result.wait(left(deadline))


def engine_failed(group: RunningEngines, error: WorkerError) -> LaunchError:
    cause = error.__cause__
    remedy = cause.findings[0].remedy if isinstance(cause, RoostError) else ""
    if isinstance(error, WorkerDied) or cause is None:
        why = error.findings[0].why
        remedy = "its process ended while starting: the worker's log has the reason"
    else:
        why = in_one_line(cause)
    failed = ServerFailed(
        Finding(code="RE120", what=f"{_who(group, error.rank)} did not start", why=why[:600], remedy=remedy)
    )
    failed.tail = getattr(cause, "tail", "")
    return failed


def engine_late(group: RunningEngines, rank: int, within: float) -> LaunchError:
    return LaunchError(
        code="RE120",
        what=f"{_who(group, rank)} is not ready after {within:g} s",
        why="its start has not returned",
        remedy="give it more time with RolloutManager(timeout=...), or look at the worker's log",
    )


def not_renewed(group: RunningEngines, endpoint: Endpoint, error: Exception) -> LaunchError:
    assert endpoint.engine is not None
    return LaunchError(
        code="RE120",
        what=f"{_who(group, endpoint.engine * group.processes)} was restarted and did not get the current weights",
        why=in_one_line(error)[:600],
        remedy="it was ended again: mend what `renew` does, then call recover()",
    )


def _who(group: RunningEngines, rank: int) -> str:
    engine, process = divmod(rank, group.processes)
    of = f", process {process} of {group.processes}" if group.processes > 1 else ""
    return f"engine {engine} of {group.component} ({group.seat(rank)}{of})"
