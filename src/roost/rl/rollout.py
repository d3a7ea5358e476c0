"""Rollout: the engines of a pool's layout, started together, listed for a router."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roost.engine.pool import Pool
from roost.engine.workers.result import GroupResult, seconds
from roost.engine.workers.worker import GroupLauncher
from roost.errors import CallTimeout, ConfigurationError, Finding, LaunchError, WorkerError, nearest
from roost.rl.addresses import parse_addresses
from roost.rl.engine_group import Endpoint, RunningEngines
from roost.rl.engine_sources import What, launchers
from roost.rl.external import ExternalEngines
from roost.rl.failures import engine_failed, engine_late
from roost.rl.role_arguments import check_pool, refused

READY_WITHIN = 600.0  # seconds for all engines together
MOST_PORTS = 1_000


class RolloutManager:
    """Runs the rollout part of a pool's layout.

    `engine` is an `Engine` class, `MyEngine.create_group(...)`, a `CommandLine`, or one of these for each
    server, or for each component, by its name. `external` are addresses of engines that run already.
    Everything is started together; when one engine cannot start, all are taken down and the error says which
    one and why. `groups` holds the engines by component, to call their methods. `name` replaces `rollout` in
    the names of the worker groups, for a second rollout in one job.
    """

    def __init__(
        self,
        pool: Pool,
        engine: What | Mapping[str, What] | None = None,
        *,
        external: Sequence[str] = (),
        health_path: str = "/health",
        dist_init_ports: int = 8,
        timeout: float = READY_WITHIN,
        name: str = "rollout",
    ) -> None:
        check_pool(pool)
        self.pool = pool
        self.groups: dict[str, RunningEngines] = {}
        self._name = name
        self._dist_init_ports = _checked_ports(dist_init_ports)
        self._timeout = READY_WITHIN if (limit := seconds(timeout)) is None else limit
        self._external = ExternalEngines(parse_addresses(_checked_list(external)), health_path)
        if pool.layout.mode.is_external and not external:
            raise ConfigurationError(
                Finding(
                    code="RC102",
                    what="the layout says rollout_external, and no external engine is named",
                    remedy='pass their addresses: external=["10.0.0.7:30000"]',
                )
            )
        sources = launchers(engine, pool.layout)
        deadline = time.monotonic() + self._timeout
        self._external.check()
        try:
            self._launch(sources, deadline)
            ranks = {name: range(group.world_size) for name, group in self.groups.items()}
            self._bring_up(ranks, deadline)
        except BaseException:
            self.shutdown(grace=0.0)
            raise

    # -- starting --------------------------------------------------------------------------------------

    def _launch(self, sources: Mapping[str, GroupLauncher], deadline: float) -> None:
        """Start the processes of every group of engines at once."""
        named = {
            component: (source, self._name + component.removeprefix("rollout"))
            for component, source in sources.items()
        }
        workers = self.pool.launch_all(named, _left(deadline)) if named else {}
        for component, part in self.pool.plan.components.items():
            if part.engines is not None:
                self.groups[component] = RunningEngines(component, part.engines, workers.get(component))

    def _bring_up(self, ranks: Mapping[str, Sequence[int]], deadline: float) -> None:
        """Ports first, each leased where its process runs; then everybody is told, and starts."""
        some = {self.groups[name]: ranks[name] for name in ranks if ranks[name]}
        asked = {group: group.take_seats(some[group], self._dist_init_ports) for group in some}
        seats = {group: dict(self._answers(group, result, deadline)) for group, result in asked.items()}
        started = {
            group: group.bring_up(some[group], [seats[group][rank] for rank in some[group]]) for group in some
        }
        for group, result in started.items():
            group.contexts.update(self._answers(group, result, deadline))

    def _answers(
        self, group: RunningEngines, result: GroupResult, deadline: float
    ) -> Iterator[tuple[int, Any]]:
        """What each rank says; a failure in the words of the engine it belongs to."""
        try:
            yield from result.as_completed(_left(deadline))
        except CallTimeout as late:
            raise engine_late(group, late.rank, self._timeout) from None
        except WorkerError as error:
            raise engine_failed(group, error) from error

    # -- asking ----------------------------------------------------------------------------------------

    def health(self, timeout: float = 10.0) -> dict[str, list[bool | None]]:
        """Of each group, engine by engine: whether it says that it can serve; None without an answer."""
        deadline = time.monotonic() + (10.0 if (limit := seconds(timeout)) is None else limit)
        asked = {name: group.ask_health() for name, group in self.groups.items() if group.workers}
        return {name: self.groups[name].healthy(results, deadline) for name, results in asked.items()}

    def endpoints(self, server: str | None = None, timeout: float = 10.0) -> list[Endpoint]:
        """The engines that can serve now, for a router: ours in the order of the pool, then external ones."""
        servers = {group.server for group in self.groups.values()} | {ExternalEngines.SERVER}
        if server is not None and server not in servers:
            raise ConfigurationError(
                Finding(code="RC101", what=f"no server {server!r}", remedy=nearest(str(server), servers))
            )
        ready = [
            self.groups[name].endpoint(engine)
            for name, engines in self.health(timeout).items()
            for engine, is_healthy in enumerate(engines)
            if is_healthy
        ]
        return [one for one in [*ready, *self._external.ready(timeout)] if server in (None, one.server)]

    # -- again, and the end ------------------------------------------------------------------------------

    def restart(self, component: str, engine: int) -> Endpoint:
        """Start one engine anew on the accelerators it has; its neighbours are not touched."""
        group = self.groups.get(component) if isinstance(component, str) else None
        if group is None or not isinstance(engine, int) or not 0 <= engine < len(group):
            known = ", ".join(f"{name} 0-{len(one) - 1}" for name, one in self.groups.items() if len(one))
            raise LaunchError(
                Finding(
                    code="RE116",
                    what=f"there is no engine {engine!r} in {component!r}"[:200],
                    why=f"engines: {known or 'none'}",
                )
            )
        assert group.workers is not None
        deadline = time.monotonic() + self._timeout
        ranks = group.ranks(engine)
        for rank in ranks:
            group.contexts.pop(rank, None)  # until it is up again, it is not
        group.workers.restart_ranks(*ranks, timeout=_left(deadline))
        try:
            self._bring_up({component: ranks}, deadline)
        except BaseException:
            group.workers.end_ranks(*ranks)
            raise
        return group.endpoint(engine)

    def recover(self, timeout: float = 10.0) -> list[Endpoint]:
        """Restart every engine that is dead, or says that it cannot serve. One that fails stops no other."""
        back, problems = [], []
        for name, engines in self.health(timeout).items():
            for engine, is_healthy in enumerate(engines):
                if is_healthy is False:
                    try:
                        back.append(self.restart(name, engine))
                    except LaunchError as error:
                        problems.append(error)
        if problems:
            raise LaunchError(*[finding for error in problems for finding in error.findings])
        return back

    def shutdown(self, grace: float = 5.0) -> None:
        """End the engines and keep their accelerators: asked first, ended after `grace` seconds in any case.

        May be called twice.
        """
        deadline = time.monotonic() + (seconds(grace) or 0.0)
        running = [group.workers for group in self.groups.values() if group.workers is not None]
        try:
            asked = [workers.stop() for workers in running if workers.is_running] if grace else []
            for result in asked:
                with contextlib.suppress(WorkerError):
                    result.wait(_left(deadline))
        finally:
            for workers in running:
                workers.shutdown()
            self.groups = {}

    def __enter__(self) -> RolloutManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<rollout of {sum(map(len, self.groups.values()))} engines in {len(self.groups)} groups>"


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _checked_ports(count: Any) -> int:
    if isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= MOST_PORTS:
        return count
    raise refused(count, f"a number of ports from 1 to {MOST_PORTS}", "such as dist_init_ports=8")


def _checked_list(addresses: Any) -> Sequence[str]:
    if isinstance(addresses, Sequence) and not isinstance(addresses, (str, bytes)):
        return addresses
    raise refused(addresses, "a list of addresses", 'such as external=["10.0.0.7:30000"]')
