"""An inference engine: one process on each node it spans, with ports and a rendezvous of its own."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any

from roost.engine.here import inline_here, lease_ports
from roost.engine.processes.confinement import confine
from roost.engine.workers.worker import Worker
from roost.rl.addresses import Address
from roost.rl.command import PLACEHOLDERS, CommandLine
from roost.rl.server_process import ServerProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSeat:
    """The host of an engine's process, and the ports the process leased there."""

    host: str
    port: int
    nccl_port: int
    dist_init_ports: tuple[int, ...] = ()  # of an engine's first process
    bootstrap_port: int | None = None  # of a prefill engine's first process


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """The facts of an engine, for one of its processes. The same names are placeholders of a command line."""

    server: str
    kind: str
    index: int  # its number in its group
    node_rank: int  # of this process in its engine
    num_nodes: int
    host: str
    port: int
    nccl_port: int
    dist_init_addr: str  # host:port on the engine's first node
    dist_init_ports: tuple[int, ...]
    bootstrap_port: int | None
    devices: tuple[str, ...] = ()
    share: float | None = None

    @property
    def url(self) -> str:
        return Address(self.host, self.port).url

    def values(self) -> dict[str, Any]:
        """The values for the placeholders of a command line. Leaves out those that this engine lacks."""
        values: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        values["engine"], values["devices"] = self.index, ",".join(self.devices)
        values["share"] = 1.0 if self.share is None else self.share
        return {name: one for name, one in values.items() if name in PLACEHOLDERS and one is not None}


class ConfinedWorker(Worker):
    """Children of its process end within seconds of it, whatever ends it; not inline, in the user's own process."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        worker = super().__new__(cls)
        if hasattr(worker, "_context") and inline_here() is None:
            confine()  # before the constructor, which may start children
        return worker


class Engine(ConfinedWorker):
    """Subclass it and override `start`, which returns when the engine can serve.

    `self.engine` holds the engine's host, ports, rendezvous address and devices. The child processes of an engine
    end with it, whatever ends it.
    """

    engine: EngineContext

    def start(self) -> None:
        """Start serving. The default does nothing."""

    def healthy(self) -> bool:
        """Whether the engine can serve; a rollout lists only endpoints of engines that can."""
        return True

    def stop(self) -> None:
        """Called before the process is ended, so that the engine can stop its server in order."""

    def offload(self) -> None:
        """Free the accelerator's memory. Until `onload`, the router sends the engine no requests."""

    def onload(self) -> None:
        """Take the accelerator's memory again. The engine can serve when this returns."""

    # -- called by the rollout manager -----------------------------------------------------------------

    def _take_seat(self, is_first: bool, kind: str, dist_init_ports: int) -> EngineSeat:
        """Lease ports on the node this process runs on."""
        bootstrap = is_first and kind == "prefill"
        single = lease_ports(3 if bootstrap else 2)
        block = lease_ports(dist_init_ports, consecutive=True) if is_first else None
        return EngineSeat(
            host=single.host,
            port=single.ports[0],
            nccl_port=single.ports[1],
            dist_init_ports=tuple(block.ports) if block else (),
            bootstrap_port=single.ports[2] if bootstrap else None,
        )

    def _bring_up(self, engine: EngineContext) -> EngineContext:
        self.engine = engine = replace(engine, devices=self._context.devices, share=self._context.share)
        # Libraries read these. From here on they describe the engine, not the group of engines.
        os.environ.update(
            RANK=str(engine.node_rank),
            WORLD_SIZE=str(engine.num_nodes),
            LOCAL_RANK="0",
            LOCAL_WORLD_SIZE="1",
            NODE_RANK=str(engine.node_rank),
            MASTER_ADDR=engine.dist_init_addr.rpartition(":")[0].strip("[]"),
            MASTER_PORT=engine.dist_init_addr.rpartition(":")[2],
        )
        self.start()
        return engine


class CommandEngine(Engine):
    """Runs a command line, such as an inference server, on every node of the engine."""

    def __init__(self, command: CommandLine) -> None:
        super().__init__()
        self.command = command
        self.process: ServerProcess | None = None

    def start(self) -> None:
        values = self.engine.values()
        self.process = ServerProcess.start(self.command.fill(values), self.command.filled_env(values))
        self.process.wait_healthy(self._health_url(), self.command.start_within)

    def _health_url(self) -> str | None:
        """The URL to ask for health. None for all but the engine's first process: only that one serves."""
        if self.engine.node_rank or not self.command.health_path:
            return None
        return self.engine.url + self.command.health_path

    def healthy(self) -> bool:
        return self.process is not None and self.process.is_healthy(self._health_url())

    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()
