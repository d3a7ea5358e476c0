"""Engines and trainers that the tests launch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import roost

HTTP_ENGINE = str(Path(__file__).parent / "programs" / "http_engine.py")
COMMAND = [
    *(sys.executable, HTTP_ENGINE, "--host", "{host}", "--port", "{port}", "--nccl-port", "{nccl_port}"),
    *("--dist-init-addr", "{dist_init_addr}", "--node-rank", "{node_rank}", "--num-nodes", "{num_nodes}"),
    *("--devices", "{devices}"),
]
LIST_ROUTER = [
    *(sys.executable, str(Path(HTTP_ENGINE).with_name("list_router.py"))),
    *("--host", "{host}", "--port", "{port}", "--metrics", "{metrics_port}", "--server", "{server}"),
]


class Telling(roost.Engine):
    """Says what it was told, and what it sees."""

    def __init__(self, note: str = "") -> None:
        super().__init__()
        self.note, self.started = note, 0
        if note == f"hangs in constructor {self.rank}":
            threading.Event().wait(60)
        self.children: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.started += 1
        if self.note == f"fails {self.engine.index}":
            raise RuntimeError("no weights here")
        if self.note == f"hangs in start {self.engine.index}":
            threading.Event().wait(60)
        if self.note.startswith("once "):
            place = Path(self.note.removeprefix("once "))
            (place / str(self.rank)).touch(exist_ok=(place / "allowed").exists())

    def become(self, note: str) -> None:
        self.note = note

    def healthy(self) -> bool:
        if self.note == f"check fails {self.rank}":
            raise RuntimeError("no idea")
        return self.note != "sick"

    def told(self) -> roost.EngineContext:
        return self.engine

    def environment(self, *names: str) -> dict[str, str | None]:
        return {name: os.environ.get(name) for name in names}

    def pid(self) -> int:
        return os.getpid()

    def can_listen(self) -> list[int]:
        """The ports of its own it can listen on, all at once."""
        ports = [self.engine.port, self.engine.nccl_port, self.engine.bootstrap_port]
        ports += self.engine.dist_init_ports if self.engine.node_rank == 0 else []
        servers = [socket.create_server((self.engine.host, port)) for port in ports if port]
        found = [server.getsockname()[1] for server in servers]
        for server in servers:
            server.close()
        return found

    def spawn(self) -> list[int]:
        """Children of every sort; one has left the session."""
        self.children = [
            subprocess.Popen(["sleep", "300"]),
            subprocess.Popen(["setsid", "sleep", "300"]),
            subprocess.Popen(["sleep", "300"], start_new_session=True, env={}),
        ]
        return [child.pid for child in self.children]

    def busy(self, path: str) -> None:
        """Until the file is there."""
        import time

        while not Path(path).exists():
            time.sleep(0.02)


class Visitor(roost.Worker):
    """Asks engines from where it runs."""

    def get(self, url: str) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=60) as answer:
            return str(answer.read().decode())


class Trainer(roost.Worker):
    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.size, self.state = size, "new"

    def init(self, model: str) -> tuple[int, str]:
        self.state = model
        return self.rank, model

    def train(self, step: int, batch: Any = None) -> tuple[int, Any]:
        return step, batch

    def eval(self) -> str:
        return self.state

    def save(self, path: str) -> str:
        return f"{path}/{self.rank}"

    def update_weights(self) -> int:
        return self.size

    def offload(self) -> str:
        self.state = "offloaded"
        return self.state

    def onload(self) -> str:
        self.state = "onloaded"
        return self.state

    def where(self) -> tuple[str | None, str | None, int]:
        return os.environ.get("CLUSTER_NODE_RANK"), os.environ.get("CUDA_VISIBLE_DEVICES"), os.getpid()

    def rendezvous(self) -> tuple[str, str]:
        return os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]

    def own_share(self) -> float | None:
        return self.share

    def meet(self, everyone: int) -> int:
        """All ranks wait for each other at rank 0's port, so each must be running at the same time."""
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if self.rank == 0:
            with socket.create_server(address) as server:
                server.settimeout(30)
                guests = [server.accept()[0] for _ in range(everyone - 1)]
            for guest in guests:
                guest.sendall(b"!")
                guest.close()
            return everyone
        import time

        deadline = time.monotonic() + 30
        while True:
            try:
                with socket.create_connection(address, timeout=30) as guest:
                    return len(guest.recv(1)) * everyone
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
