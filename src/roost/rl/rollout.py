"""Rollout: starts the engines of a pool's layout together, and lists them for a router."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from roost.engine.placement_groups import PlacementGroups, RoleGroup
from roost.engine.pool import Pool
from roost.engine.workers.result import GroupResult, seconds_or
from roost.engine.workers.worker import GroupLauncher
from roost.errors import (
    CallTimeout,
    ClusterError,
    ConfigurationError,
    LaunchError,
    RoostError,
    WorkerError,
    counted,
    nearest,
)
from roost.rl.addresses import parse_addresses
from roost.rl.command import CommandLine
from roost.rl.engine_group import (
    Endpoint,
    RunningEngines,
    engine_failed,
    engine_late,
    left,
    not_renewed,
    stop_all,
)
from roost.rl.external import ExternalEngines
from roost.rl.role_arguments import What, launchers, pool_of, refused
from roost.rl.routers import ROUTED, Router, checked_router, end_routers, start_routers

READY_WITHIN = 600.0  # seconds for all engines together
ANSWER_WITHIN = 10.0
MOST_PORTS = 1_000


class RolloutManager(AbstractContextManager["RolloutManager"]):
    """Runs the rollout part of a pool's layout.

    `engine` is an `Engine` class, `MyEngine.create_group(...)`, a `CommandLine`, or one of these for each
    server, or for each component, by its name. `external` are addresses of engines that run already.
    All engines start together; if one cannot start, the manager ends all, and the error says which one failed and
    why. `groups` holds the engines by component, to call their methods. `name` replaces `rollout` in the names of the
    worker groups, for a second rollout in one job. The manager calls `renew` with the endpoint of each restarted
    engine, to bring it the current weights; until `renew` returns, the engine is not listed. With `router=True`, each
    server has one address in front of its engines, `routers[server].url`; a `CommandLine` runs another router than
    sglang-router.
    """

    def __init__(
        self,
        pool: Pool | RoleGroup | PlacementGroups,
        engine: What | Mapping[str, What] | None = None,
        *,
        external: Sequence[str] = (),
        health_path: str = "/health",
        dist_init_ports: int = 8,
        timeout: float = READY_WITHIN,
        name: str = "rollout",
        renew: Callable[[Endpoint], object] | None = None,
        router: CommandLine | bool = False,
    ) -> None:
        pool = self.pool = pool_of(pool)
        self.groups: dict[str, RunningEngines] = {}
        self.routers: dict[str, Router] = {}
        self._offloaded: set[tuple[str, int]] = set()  # engines, by component and number
        self._ended = False
        self._name = name
        self._renew = renew
        self._dist_init_ports = _checked_ports(dist_init_ports)
        self._timeout = seconds_or(READY_WITHIN, timeout)
        self._external = ExternalEngines(parse_addresses(_checked_list(external)), health_path)
        if pool.layout.mode.is_external and not external:
            raise ConfigurationError(
                code="RC102",
                what="the layout says rollout_external, and no external engine is named",
                remedy='pass their addresses: external=["10.0.0.7:30000"]',
            )
        sources, router = launchers(engine, pool.layout), checked_router(router)
        deadline = time.monotonic() + self._timeout
        self._external.check()
        try:
            if router and (kinds := self._routed_kinds()):
                command = router if isinstance(router, CommandLine) else None
                self.routers = start_routers(pool, command, kinds, name, deadline)
            self._launch(sources, deadline)
            ranks = {name: range(group.world_size) for name, group in self.groups.items()}
            self._bring_up(ranks, deadline)
            self._tell_routers(deadline)
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
        workers = self.pool.launch_all(named, left(deadline)) if named else {}
        for component, part in self.pool.plan.components.items():
            if part.engines is not None:
                self.groups[component] = RunningEngines(component, part.engines, workers.get(component))

    def _bring_up(self, ranks: Mapping[str, Sequence[int]], deadline: float) -> None:
        """Let every process lease ports on its node, then give every process its context and start it."""
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
        """The answer of each rank. A failure becomes an error that names the engine."""
        try:
            yield from result.as_completed(left(deadline))
        except CallTimeout as late:
            raise engine_late(group, late.rank, self._timeout) from None
        except WorkerError as error:
            raise engine_failed(group, error) from error

    # -- routers ---------------------------------------------------------------------------------------

    @property
    def router(self) -> Router:
        """The router of the only server that has one."""
        if self._ended:
            raise LaunchError(
                code="RE129",
                what="this rollout has ended",
                why="shutdown() ended its routers with its engines",
            )
        if len(self.routers) != 1:
            names = ", ".join(sorted(self.routers))
            raise LaunchError(
                code="RE129",
                what=f"this rollout has {len(self.routers) or 'no'} routers",
                why=f"they are those of {names}" if names else "",
                remedy="ask for one: rollout.routers[server]"
                if names
                else "pass router=True, with a layout that runs engines",
            )
        return next(iter(self.routers.values()))

    def _routed_kinds(self) -> dict[str, frozenset[str]]:
        """For each server, the kinds of its engines that a router can send requests to."""
        found: dict[str, set[str]] = {}
        for part in self.pool.layout.engine_groups():
            if part.kind in ROUTED:
                found.setdefault(part.server, set()).add(part.kind)
        if self._external.addresses:
            found.setdefault(ExternalEngines.SERVER, set()).add("regular")
        return {server: frozenset(kinds) for server, kinds in found.items()}

    def _tell_routers(
        self,
        deadline: float,
        *,
        without: Collection[tuple[str, int]] = (),
        joining: Collection[tuple[str, int]] | None = None,
        server: str | None = None,
    ) -> None:
        """Give every router, or that of one server, its engines: those that are up, except `without`.

        Raises if an engine of `joining`, or any engine if that is None, does not join. If one router fails, the others
        still get their engines.
        """
        up = {
            (name, engine): group.endpoint(engine)
            for name, group in self.groups.items()
            for engine in group.up()
            if (name, engine) not in self._offloaded and (name, engine) not in without
        }
        required = None if joining is None else {up[one].url for one in joining}
        problems: list[LaunchError] = []
        for name, router in self.routers.items():
            if server not in (None, name):
                continue
            served = self._external.endpoints() if name == ExternalEngines.SERVER else up.values()
            wanted = [one for one in served if one.server == name and one.kind in ROUTED]
            try:
                router.route_to(wanted, deadline, required)
            except LaunchError as error:
                problems.append(error)
        if problems:
            raise _together(problems)

    # -- asking ----------------------------------------------------------------------------------------

    def health(self, timeout: float = ANSWER_WITHIN) -> dict[str, list[bool | None]]:
        """Whether each engine of each group can serve, by the engine's own answer; None without an answer."""
        deadline = time.monotonic() + seconds_or(ANSWER_WITHIN, timeout)
        asked = {name: group.ask_health() for name, group in self.groups.items() if group.workers}
        return {name: self.groups[name].healthy(results, deadline) for name, results in asked.items()}

    def endpoints(self, server: str | None = None, timeout: float = ANSWER_WITHIN) -> list[Endpoint]:
        """The engines that can serve now: those of the pool in its order, then external ones."""
        servers = {group.server for group in self.groups.values()} | {ExternalEngines.SERVER}
        if server is not None and server not in servers:
            raise ConfigurationError(
                code="RC101", what=f"no server {server!r}", remedy=nearest(str(server), servers)
            )
        ready = [
            self.groups[name].endpoint(engine)
            for name, engines in self.health(timeout).items()
            for engine, is_healthy in enumerate(engines)
            if is_healthy and (name, engine) not in self._offloaded
        ]
        return [one for one in [*ready, *self._external.ready(timeout)] if server in (None, one.server)]

    # -- again, and the end ------------------------------------------------------------------------------

    def restart(self, component: str, engine: int) -> Endpoint:
        """Restart one engine on its accelerators. Other engines go on."""
        group = self.groups.get(component) if isinstance(component, str) else None
        if group is None or not isinstance(engine, int) or not 0 <= engine < len(group):
            known = ", ".join(f"{name} 0-{len(one) - 1}" for name, one in self.groups.items() if len(one))
            raise LaunchError(
                code="RE116",
                what=f"there is no engine {engine!r} in {component!r}"[:200],
                why=f"engines: {known or 'none'}",
            )
        deadline = time.monotonic() + self._timeout
        self._tell_routers(deadline, without=[(component, engine)], joining=(), server=group.server)
        endpoint = self._start_anew(component, engine, deadline)
        self._tell_routers(deadline, joining=[(component, engine)], server=group.server)
        return endpoint

    def _start_anew(self, component: str, engine: int, deadline: float) -> Endpoint:
        """Start an engine that its router sends nothing to any more."""
        group = self.groups[component]
        assert group.workers is not None
        ranks = group.ranks(engine)
        group.forget(engine)
        self._offloaded.discard((component, engine))
        group.workers.restart_ranks(*ranks, timeout=left(deadline))
        try:
            self._bring_up({component: ranks}, deadline)
            endpoint = group.endpoint(engine)
            if self._renew is not None:  # it must not serve with its initial weights
                kept = {rank: group.contexts.pop(rank) for rank in ranks}
                self._renew_weights(group, endpoint)
                group.contexts.update(kept)
        except BaseException:
            group.workers.end_ranks(*ranks)
            raise
        return endpoint

    def _renew_weights(self, group: RunningEngines, endpoint: Endpoint) -> None:
        assert self._renew is not None
        try:
            self._renew(endpoint)
        except ClusterError:  # there is nothing left to recover
            raise
        except Exception as error:  # the program's own, whatever it is
            raise not_renewed(group, endpoint, error) from error

    def recover(self, timeout: float = ANSWER_WITHIN) -> list[Endpoint]:
        """Restart every engine that is dead or cannot serve, and every router that does not answer.

        If one restart fails, the others still happen.
        """
        limit = seconds_or(ANSWER_WITHIN, timeout)
        back: list[Endpoint] = []
        problems: list[RoostError] = []
        dead = [
            (name, engine)
            for name, engines in self.health(limit).items()
            for engine, is_healthy in enumerate(engines)
            if is_healthy is False and (name, engine) not in self._offloaded
        ]
        for name, engine in dead:
            self.groups[name].forget(engine)
        deadline = time.monotonic() + self._timeout
        for router in self.routers.values():
            try:
                router.recover(limit, deadline)
            except (LaunchError, WorkerError) as error:
                problems.append(error)
        try:
            self._tell_routers(deadline)
        except LaunchError as error:
            problems.append(error)
        for name, engine in dead:
            deadline = time.monotonic() + self._timeout
            try:  # its router may be down: the engine comes back in any case
                back.append(self._start_anew(name, engine, deadline))
                self._tell_routers(deadline, joining=[(name, engine)], server=self.groups[name].server)
            except (LaunchError, WorkerError) as error:
                problems.append(error)
        if problems:
            raise _together(problems)
        return back

    def offload(self, *components: str) -> None:
        """Take the engines of these components, or of all, off their routers, then call `offload` on each."""
        deadline = time.monotonic() + self._timeout
        chosen = self._chosen(components)
        engines = {(name, engine) for name in chosen for engine in self.groups[name].up()}
        self._tell_routers(deadline, without=engines, joining=())
        self._offloaded |= engines
        self._on_each(chosen, "offload", deadline)

    def onload(self, *components: str) -> None:
        """Call `onload` on the engines of these components, or of all, then add them to their routers again."""
        deadline = time.monotonic() + self._timeout
        chosen = self._chosen(components)
        self._on_each(chosen, "onload", deadline)
        self._offloaded = {one for one in self._offloaded if one[0] not in chosen}
        self._tell_routers(deadline)

    def _chosen(self, components: Sequence[str]) -> list[str]:
        for name in components:
            if name not in self.groups:
                what, remedy = f"there are no engines in {name!r}"[:200], nearest(str(name), self.groups)
                raise LaunchError(code="RE116", what=what, remedy=remedy)
        return list(components or self.groups)

    def _on_each(self, components: Sequence[str], method: str, deadline: float) -> None:
        asked = [group.call(method) for name in components if (group := self.groups[name]).contexts]
        for result in asked:
            result.wait(left(deadline))

    def shutdown(self, grace: float = 5.0) -> None:
        """Ask the engines to stop, and end them after at most `grace` seconds. Keeps their accelerators.

        Their routers stop before them, in at most half of that time. May be called twice.
        """
        grace, now = seconds_or(0.0, grace), time.monotonic()
        running = [group.workers for group in self.groups.values() if group.workers is not None]
        routers, self.routers = self.routers, {}
        try:
            end_routers(routers.values(), now + grace / 2)
            if grace:
                stop_all(running, now + grace)
        finally:
            for workers in running:
                workers.shutdown()
            self.groups, self._ended = {}, True

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        engines = counted(sum(map(len, self.groups.values())), "engine")
        return f"<rollout of {engines} in {counted(len(self.groups), 'group')}>"


def _together(errors: Sequence[RoostError]) -> RoostError:
    if len(errors) == 1:
        return errors[0]
    return LaunchError(*dict.fromkeys(finding for error in errors for finding in error.findings))


def _checked_ports(count: Any) -> int:
    if isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= MOST_PORTS:
        return count
    raise refused(count, f"a number of ports from 1 to {MOST_PORTS}", "such as dist_init_ports=8")


def _checked_list(addresses: Any) -> Sequence[str]:
    if isinstance(addresses, Sequence) and not isinstance(addresses, (str, bytes)):
        return addresses
    raise refused(addresses, "a list of addresses", 'such as external=["10.0.0.7:30000"]')
