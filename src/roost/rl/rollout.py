"""Rollout: the engines of a pool's layout, started together, listed for a router."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

from roost.config.engines import EngineSlice
from roost.engine.group import GroupLauncher
from roost.engine.pool import Pool
from roost.engine.result import seconds
from roost.errors import ConfigurationError, Finding, LaunchError, WorkerError, nearest
from roost.rl.addresses import Address, http_status, parse_addresses
from roost.rl.command import CommandLine
from roost.rl.engine import CommandEngine, Engine
from roost.rl.engine_group import Endpoint, RunningEngines

What = GroupLauncher | type[Engine] | CommandLine
READY_WITHIN = 600.0  # seconds for all engines together


class RolloutManager:
    """Runs the rollout part of a pool's layout.

    `engine` is an `Engine` class, `MyEngine.create_group(...)`, a `CommandLine`, or one of these for each
    server by its name. `external` are addresses of engines that run already. Everything is started together;
    when one engine cannot start, all are taken down and the error says which one and why. `groups` holds the
    engines by component, to call their methods.
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
    ) -> None:
        self.pool = pool
        self.groups: dict[str, RunningEngines] = {}
        self._dist_init_ports, self._health_path = dist_init_ports, health_path
        self._timeout = READY_WITHIN if (limit := seconds(timeout)) is None else limit
        self._external = parse_addresses(external)
        parts = pool.layout.engine_groups()
        launchers = _launchers(engine, {part.server for part in parts if part.kind != "placeholder"})
        self._join()
        try:
            for part in parts:
                self.groups[part.component] = self._launch(part, launchers)
            self._bring_up({name: range(group.world_size) for name, group in self.groups.items()})
        except BaseException:
            self.shutdown(grace=0.0)
            raise

    # -- starting --------------------------------------------------------------------------------------

    def _launch(self, part: EngineSlice, launchers: Mapping[str, GroupLauncher]) -> RunningEngines:
        members = self.pool.plan.components[part.component].members
        processes = part.gpus_per_engine // len(members[0].hardware)
        if part.kind == "placeholder":
            return RunningEngines(part, processes, None)
        workers = launchers[part.server].launch(
            self.pool.cluster,
            placement_strategy=self.pool.strategy(part.component),
            name=part.component,
            shares=self.pool.shares(part.component),
        )
        return RunningEngines(part, processes, workers)

    def _bring_up(self, ranks: Mapping[str, Sequence[int]]) -> None:
        """Ports first, each leased where its process runs; then everybody is told, and starts."""
        deadline = time.monotonic() + self._timeout
        some = {self.groups[name]: ranks[name] for name in ranks if ranks[name]}
        asked = {group: group.take_seats(some[group], self._dist_init_ports) for group in some}
        seats = {group: result.wait(_left(deadline)) for group, result in asked.items()}
        started = {group: group.bring_up(some[group], seats[group]) for group in some}
        for group, result in started.items():
            group.contexts.update(result.as_completed(_left(deadline)))

    def _join(self) -> None:
        """External engines must answer before anything is started here."""
        answers = [(address, self._ask(address, 5.0)) for address in self._external]
        silent = [(address, answer) for address, answer in answers if not _is_fine(answer)]
        if silent:
            raise LaunchError(
                *[
                    Finding(
                        code="RE120",
                        what=f"the external engine at {address.url} is not ready",
                        why=f"{self._health_path} answered {answer}" if isinstance(answer, int) else answer,
                        remedy="start it, or correct its address",
                    )
                    for address, answer in silent
                ]
            )

    def _ask(self, address: Address, timeout: float) -> int | str:
        return http_status(address.url + self._health_path, timeout)

    # -- asking ----------------------------------------------------------------------------------------

    def health(self, timeout: float = 10.0) -> dict[str, list[bool]]:
        """Of each group, engine by engine: whether it lives and says that it can serve."""
        deadline = time.monotonic() + timeout
        return {name: group.healthy(deadline) for name, group in self.groups.items() if group.workers}

    def endpoints(self, server: str | None = None, timeout: float = 10.0) -> list[Endpoint]:
        """The engines that can serve now, for a router: ours in the order of the pool, then external ones."""
        ready = [
            self.groups[name].endpoint(engine)
            for name, engines in self.health(timeout).items()
            for engine, is_healthy in enumerate(engines)
            if is_healthy
        ]
        ready += [
            Endpoint(url=one.url, server="external", kind="regular", host=one.host, port=one.port)
            for one in self._external
            if _is_fine(self._ask(one, min(5.0, timeout)))
        ]
        return [endpoint for endpoint in ready if server in (None, endpoint.server)]

    # -- again, and the end ------------------------------------------------------------------------------

    def restart(self, component: str, engine: int) -> Endpoint:
        """Start one engine anew on the accelerators it has; its neighbours are not touched."""
        group = self.groups.get(component)
        if group is None or not 0 <= engine < len(group):
            known = ", ".join(f"{name} 0-{len(one) - 1}" for name, one in self.groups.items() if len(one))
            raise LaunchError(
                Finding(
                    code="RE116",
                    what=f"there is no engine {engine!r} in {component!r}",
                    why=f"engines: {known or 'none'}",
                )
            )
        assert group.workers is not None
        group.workers.restart_ranks(*group.ranks(engine))
        self._bring_up({component: group.ranks(engine)})
        return group.endpoint(engine)

    def recover(self, timeout: float = 10.0) -> list[Endpoint]:
        """Restart every engine that is dead, or says that it cannot serve."""
        return [
            self.restart(name, engine)
            for name, engines in self.health(timeout).items()
            for engine, is_healthy in enumerate(engines)
            if not is_healthy
        ]

    def shutdown(self, grace: float = 5.0) -> None:
        """End the engines and keep their accelerators: asked first, ended after `grace` seconds in any case.

        May be called twice.
        """
        groups, self.groups = self.groups, {}
        running = [group.workers for group in groups.values() if group.workers is not None]
        asked = [workers.stop() for workers in running] if grace > 0 else []
        deadline = time.monotonic() + grace
        for result in asked:
            with contextlib.suppress(WorkerError):
                result.wait(_left(deadline))
        for workers in running:
            workers.shutdown()

    def __enter__(self) -> RolloutManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<rollout of {sum(map(len, self.groups.values()))} engines in {len(self.groups)} groups>"


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _is_fine(answer: int | str) -> bool:
    return isinstance(answer, int) and 200 <= answer < 300


def _launchers(engine: What | Mapping[str, What] | None, servers: set[str]) -> dict[str, GroupLauncher]:
    """What to run for each server; everything that is missing or superfluous is said at once."""
    if engine is None and servers:
        raise ConfigurationError(
            Finding(
                code="RC102",
                what=f"nothing says what the engines of {', '.join(sorted(servers))} are",
                remedy="pass an Engine class or a CommandLine",
            )
        )
    given = dict(engine) if isinstance(engine, Mapping) else dict.fromkeys(servers, engine)
    problems = [
        Finding(code="RC102", what=f"server {name!r} has no engine", remedy=nearest(name, given))
        for name in sorted(servers - set(given))
    ]
    problems += [
        Finding(code="RC101", what=f"the layout has no server {name!r}", remedy=nearest(name, servers))
        for name in sorted(set(given) - servers)
    ]
    launchers = {}
    for name in sorted(servers & set(given)):
        what = given[name]
        if isinstance(what, CommandLine):
            launchers[name] = CommandEngine.create_group(what)
        elif isinstance(what, GroupLauncher):
            launchers[name] = what
        elif isinstance(what, type) and issubclass(what, Engine):
            launchers[name] = what.create_group()
        else:
            problems.append(
                Finding(
                    code="RC103",
                    what=f"server {name!r}: {what!r} is not an engine"[:200],
                    remedy="pass a subclass of roost.Engine, what its create_group returns, or a CommandLine",
                )
            )
    if problems:
        raise ConfigurationError(*problems)
    return launchers
