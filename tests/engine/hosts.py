"""Hosts with addresses of their own on one machine: network namespaces, joined by a bridge, a Ray node in each.

Nothing is made outside the namespaces, whose names carry this process's number.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from running import eventually

RAY = str(Path(sys.executable).with_name("ray"))
PORT = 6379
_numbers = itertools.count()
SETTINGS = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}


def run(*command: str, within: float = 90.0, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=within, env={**os.environ, **SETTINGS, **(env or {})}
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass
class Hosts:
    """`with Hosts({"head": "10.77.0.9", ...}) as hosts:`; the first is the head."""

    addresses: dict[str, str]
    gpus: int = 2
    variables: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="rh-"))
        self._prefix = f"roost-{os.getpid()}-{next(_numbers)}"
        self._switch = self.namespace("switch")

    def namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    @property
    def head(self) -> str:
        return next(iter(self.addresses))

    @property
    def address(self) -> str:
        return f"{self.addresses[self.head]}:{PORT}"

    def __enter__(self) -> Hosts:
        try:
            self._connect()
            for name in self.addresses:
                self._start_ray(name)
        except BaseException:
            self.close()
            raise
        return self

    def _connect(self) -> None:
        run("ip", "netns", "add", self._switch)
        switch = ("ip", "-n", self._switch)
        run(*switch, "link", "add", "bridge", "type", "bridge")
        run(*switch, "link", "set", "bridge", "up")
        for number, (name, address) in enumerate(self.addresses.items()):
            host = self.namespace(name)
            run("ip", "netns", "add", host)
            run(
                "ip",
                "-n",
                host,
                "link",
                "add",
                "eth0",
                "type",
                "veth",
                "peer",
                "name",
                f"p{number}",
                "netns",
                self._switch,
            )
            run(*switch, "link", "set", f"p{number}", "master", "bridge", "up")
            run("ip", "-n", host, "link", "set", "lo", "up")
            run("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", host, "link", "set", "eth0", "up")

    def _start_ray(self, name: str) -> None:
        directory = self._directory / name  # each host its own files, as on real machines
        directory.mkdir()
        role = (
            ["--head", f"--port={PORT}", "--include-dashboard=false"]
            if name == self.head
            else [f"--address={self.address}"]
        )
        options = [
            f"--node-ip-address={self.addresses[name]}",
            "--num-cpus=2",
            f"--num-gpus={self.gpus}",
            "--disable-usage-stats",
        ]
        run(*self.on(name), RAY, "start", *role, *options, env=self.variables.get(name))

    def on(self, name: str) -> list[str]:
        """What stands before a command that is to run on this host: its network, and its own /tmp/ray."""
        own = f'mkdir -p /tmp/ray && mount --bind {self._directory / name} /tmp/ray && exec "$@"'
        return ["ip", "netns", "exec", self.namespace(name), "unshare", "-m", "sh", "-c", own, "sh"]

    def close(self) -> None:
        names = [self.namespace(name) for name in self.addresses]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in [pid for name in names for pid in _pids(name)]:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline and any(_pids(name) for name in names):
                time.sleep(0.05)
        eventually(lambda: not any(_pids(name) for name in names), 10, "the hosts' processes end")
        for name in [*names, self._switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        shutil.rmtree(self._directory, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self.close()


def _pids(namespace: str) -> list[int]:
    found = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]
