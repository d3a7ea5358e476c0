"""Routers: one address in front of the ready engines of each server."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from roost.engine.group import WorkerGroup
from roost.engine.pool import Pool
from roost.engine.ports.port_lease import PortLease
from roost.engine.workers.remote_errors import in_one_line
from roost.engine.workers.result import GroupResult
from roost.errors import (
    CallTimeout,
    ConfigurationError,
    Finding,
    LaunchError,
    RoostError,
    WorkerDied,
    WorkerError,
)
from roost.planning.plan import Plan
from roost.planning.planner import plan_allocation
from roost.rl.addresses import Address
from roost.rl.command import CommandLine
from roost.rl.engine_group import Endpoint, left, stop_all
from roost.rl.role_arguments import refused
from roost.rl.router_list import RoutedEngine
from roost.rl.router_worker import JOIN_WITHIN, START_WITHIN, RouterWorker
from roost.rl.server_process import ServerFailed

log = logging.getLogger("roost")

NODE = 0  # the node of the job's managers: without that node the job is lost anyway
AROUND = 5.0  # seconds for what a router's worker does besides starting the router
ROUTED = frozenset(("regular", "prefill", "decode"))
FILLED_IN = frozenset(("host", "port", "metrics_port", "server"))


class Router:
    """One address in front of the ready engines of a server."""

    def __init__(self, server: str, lease: PortLease, workers: WorkerGroup, start_within: float) -> None:
        self.server, self.workers, self._start_within = server, workers, start_within
        self.host, self.port = lease.host, lease.ports[0]
        self._lease = lease

    @property
    def url(self) -> str:
        return Address(self.host, self.port).url

    def engines(self, timeout: float = 10.0) -> list[RoutedEngine]:
        """The engines that the router now sends requests to."""
        found: list[RoutedEngine] = self._answer(self.workers.engines(), timeout)
        return found

    def route_to(
        self, wanted: Sequence[Endpoint], deadline: float, required: Collection[str] | None = None
    ) -> None:
        """Make these the router's engines. Raises if one of `required`, by default any, did not join."""
        within = min(JOIN_WITHIN, left(deadline))
        # A router that has ended is started first. A start of a minute may go on after the deadline.
        starting = min(self._start_within, max(START_WITHIN, left(deadline)))
        asked = self.workers.route_to(list(wanted), within)
        refused: dict[str, str] = self._answer(asked, within + starting + AROUND)
        missed = [url for url in refused if required is None or url in required]
        if missed:
            raise LaunchError(*[self._not_joined(url, refused[url]) for url in missed])
        for url in refused:
            log.warning("%s", self._not_joined(url, refused[url]).what)

    def recover(self, within: float, deadline: float) -> None:
        """Start the router again on its address, without engines, if it does not answer within these seconds."""
        try:
            if self._answer(self.workers.healthy(), within):
                return
            self._answer(self.workers.restart(), left(deadline))
        except LaunchError:  # the process that runs it is dead or hangs
            self.workers.restart_ranks(0, timeout=left(deadline))
            self._answer(self.workers.start(), left(deadline))

    def end(self) -> None:
        self.workers.shutdown()
        self._lease.release()

    def _answer(self, result: GroupResult, timeout: float | None) -> Any:
        try:
            return result.wait(timeout)[0]
        except WorkerError as error:
            raise self._failed(error) from error

    def _failed(self, error: WorkerError) -> LaunchError:
        cause = error.__cause__
        if isinstance(cause, RoostError) and not isinstance(error, (CallTimeout, WorkerDied)):
            failed = ServerFailed(*[_of_router(self.server, finding) for finding in cause.findings])
            failed.tail = getattr(cause, "tail", "")
            return failed
        why = error.findings[0].why or (in_one_line(cause) if cause else error.findings[0].what)
        return LaunchError(
            code="RE129",
            what=f"the router of server {self.server!r} at {self.url} does not answer",
            why=why[:600],
            remedy="recover() starts it anew; the worker's log has its output",
        )

    def _not_joined(self, url: str, why: str) -> Finding:
        return Finding(
            code="RE129",
            what=f"the engine at {url} did not join the router of server {self.server!r}",
            why=why[:600],
            remedy="behind sglang-router an engine is an HTTP server that answers /health on its port",
        )

    def __repr__(self) -> str:
        return f"<router of {self.server} at {self.url}>"


def checked_router(router: Any) -> CommandLine | bool:
    if isinstance(router, bool):
        return router
    if not isinstance(router, CommandLine):
        raise refused(router, "a router", "pass router=True, or router=CommandLine(...)")
    if unknown := router.placeholders - FILLED_IN:
        raise ConfigurationError(
            code="RC104",
            what=f"the router's command uses {', '.join(f'{{{name}}}' for name in sorted(unknown))}",
            why="that is known of engines only",
            remedy=f"use {', '.join(f'{{{name}}}' for name in sorted(FILLED_IN))}",
        )
    return router


def start_routers(
    pool: Pool, command: CommandLine | None, kinds: Mapping[str, frozenset[str]], name: str, deadline: float
) -> dict[str, Router]:
    """Start a router for each server, all or none. Without a command they are sglang-router."""
    _check_kinds(kinds)
    leases: dict[str, PortLease] = {}
    routers: dict[str, Router] = {}
    inventory, cluster = pool.cluster.inventory, pool.cluster
    names = {server: f"{name}.{server}.router" for server in kinds}
    try:
        for server in kinds:
            leases[server] = cluster.lease_ports(NODE, 2, timeout=min(30.0, left(deadline)))
        parts = [plan_allocation(one, NODE, None, inventory).components[one] for one in names.values()]
        plan = Plan(inventory=inventory, components={part.name: part for part in parts})
        sources = {}
        for server, component in names.items():
            host, (port, metrics_port) = leases[server].host, leases[server].ports
            source = RouterWorker.create_group(
                command, kinds[server], Address(host, port), metrics_port, server
            )
            sources[component] = (source, component)
        groups = cluster.launch_components(plan, sources, left(deadline))
        for server, component in names.items():
            start_within = START_WITHIN if command is None else command.start_within
            routers[server] = Router(server, leases[server], groups[component], start_within)
            pool.end_with(groups[component])
        started = {server: router.workers.start() for server, router in routers.items()}
        for server, result in started.items():
            routers[server]._answer(result, left(deadline))
    except BaseException:
        end_routers(routers.values(), time.monotonic())
        for lease in leases.values():
            lease.release()
        raise
    return routers


def end_routers(routers: Collection[Router], deadline: float) -> None:
    """Ask the routers to stop, and end them at the deadline at the latest."""
    try:
        if left(deadline):
            stop_all([one.workers for one in routers], deadline)
    finally:
        for one in routers:
            one.end()


def _check_kinds(kinds: Mapping[str, frozenset[str]]) -> None:
    """Raise unless a router can send each request to one engine, or to a prefill engine and a decode engine."""
    problems = [
        Finding(
            code="RC104",
            what=f"server {server!r} cannot have a router",
            why=f"its engines are {', '.join(sorted(found))}",
            remedy="a router needs regular engines only, or prefill and decode engines",
        )
        for server, found in kinds.items()
        if found not in ({"regular"}, {"prefill", "decode"})
    ]
    if problems:
        raise ConfigurationError(*problems)


def _of_router(server: str, finding: Finding) -> Finding:
    if finding.code == "RE129":
        return finding
    return Finding(
        code="RE129",
        what=f"the router of server {server!r} did not start: {finding.what}",
        why=finding.why,
        remedy=finding.remedy,
    )
