"""The process that runs a router as its child, and keeps it running with the right list of engines."""

from __future__ import annotations

import importlib.util
import logging
import sys
import threading
import time
from collections.abc import Sequence

from roost.errors import LaunchError
from roost.rl.addresses import Address
from roost.rl.command import CommandLine
from roost.rl.engine import ConfinedWorker
from roost.rl.engine_group import Endpoint
from roost.rl.router_list import RoutedEngine, RouterList
from roost.rl.server_process import ServerProcess

log = logging.getLogger("roost")

PACKAGE = "sglang_router"
WATCH_EVERY = 0.5  # seconds
MOST_RESTARTS = 3
WITHIN = 300.0  # seconds in which more restarts than that are too many
JOIN_WITHIN = 30.0
STOP_WITHIN = 3.0
START_WITHIN = 60.0  # of sglang-router


class RouterWorker(ConfinedWorker):
    """Runs a router. If the router ends by itself, starts it again on the same address, with the same engines."""

    def __init__(
        self,
        command: CommandLine | None,
        kinds: frozenset[str],
        address: Address,
        metrics_port: int,
        server: str,
    ) -> None:
        super().__init__()
        self._own, self._kinds, self._url = command, kinds, address.url
        self._values = {
            "host": address.host,
            "port": address.port,
            "metrics_port": metrics_port,
            "server": server,
        }
        self._list = RouterList(self._url)
        self._wanted: tuple[Endpoint, ...] = ()
        self._process: ServerProcess | None = None
        self._turn, self._stopping = threading.Lock(), threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="roost-router")

    def start(self) -> None:
        """Start the router. Returns when it answers."""
        with self._turn:
            # Not in the constructor: an error there is shown without its remedy.
            self._command = sglang_router(self._kinds) if self._own is None else self._own
            self._run()
        self._watcher.start()

    def route_to(self, wanted: Sequence[Endpoint], within: float) -> dict[str, str]:
        """Make these the router's engines. Returns why engines did not join, by URL."""
        with self._turn:
            self._wanted = tuple(wanted)
            if not self._running:
                self._run()
            return self._list.bring_to(self._wanted, within)

    def engines(self) -> list[RoutedEngine]:
        return self._list.engines()

    def healthy(self) -> bool:
        return self._process is not None and self._process.is_healthy(self._health_url)

    def restart(self) -> None:
        """End the router and start it again without engines, unless it is healthy: its watcher may have started it."""
        with self._turn:
            if self.healthy():
                return
            self._wanted = ()
            if self._process is not None:
                self._process.stop(grace=0.0)
            self._run()

    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def stop(self) -> None:
        self._stopping.set()
        self._turn.acquire(timeout=STOP_WITHIN)  # the watcher may be starting the router
        if self._process is not None:
            self._process.stop()

    @property
    def _health_url(self) -> str | None:
        return self._url + self._command.health_path if self._command.health_path else None

    @property
    def _running(self) -> bool:
        return self._process is not None and self._process.running

    def _run(self) -> None:
        command = self._command
        process = ServerProcess.start(command.fill(self._values), command.filled_env(self._values))
        self._process = process
        try:
            process.wait_healthy(self._health_url, command.start_within)
        except BaseException:
            process.stop(grace=0.0)
            raise

    def _watch(self) -> None:
        ends: list[float] = []
        given_up = False  # until `recover` starts the router
        while not self._stopping.wait(WATCH_EVERY):
            with self._turn:
                given_up = given_up and not self._running
                if self._running or given_up or self._stopping.is_set():
                    continue
                now = time.monotonic()
                ends = [one for one in ends if now - one < WITHIN] + [now]
                if len(ends) > MOST_RESTARTS:
                    log.error("the router at %s ended %d times; it is left so", self._url, len(ends))
                    ends, given_up = [], True
                    continue
                log.warning("the router at %s ended; it is started again", self._url)
                try:
                    self._run()
                    refused = self._list.bring_to(self._wanted, JOIN_WITHIN)
                except (LaunchError, OSError) as error:
                    log.warning("the router at %s could not be started again: %s", self._url, error)
                else:
                    for url, why in refused.items():
                        log.warning("engine %s did not join the router at %s: %s", url, self._url, why)


def sglang_router(kinds: frozenset[str]) -> CommandLine:
    """The command of sglang-router. Call it on the router's node: the package must be installed there."""
    if importlib.util.find_spec(PACKAGE) is None:
        raise LaunchError(
            code="RE129",
            what="router=True runs sglang-router, and it is not installed on the router's node",
            why=f"{sys.executable} cannot import {PACKAGE}",
            remedy="run `pip install 'roost[router]'` there, or pass router=CommandLine(...)",
        )
    words = [
        *(sys.executable, "-m", f"{PACKAGE}.launch_router", "--host", "{host}", "--port", "{port}"),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", "{metrics_port}", "--log-level", "warn"),
        # After three failed checks the router sends an engine no requests.
        *("--health-check-interval-secs", "5", "--shutdown-grace-period-secs", "3"),
        *("--worker-startup-timeout-secs", "10"),  # engines join when they are ready
        *(["--pd-disaggregation"] if "prefill" in kinds else []),
    ]
    # With these variables the router would ask engines through a proxy, even those of its own machine.
    proxies = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
    return CommandLine(words, env=dict.fromkeys(proxies, ""), start_within=START_WITHIN)
