"""Hosts with addresses of their own on this machine: network namespaces joined by a bridge."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from running import Program, module_path

# The first has the head. As text 10.77.0.10 comes before 10.77.0.9, and 10.77.0.200 between them.
ADDRESSES = ("10.77.0.200", "10.77.0.9", "10.77.0.10")
# Without a dashboard Ray still starts its process, for usage statistics alone.
START = """
from ray._private.node import Node
from ray.scripts.scripts import main
Node.start_api_server = lambda *_, **__: None
main()
"""


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"`ip {' '.join(arguments)}` failed, which needs root: {done.stderr.strip()}")


class Hosts:
    """Three hosts that can run commands, and a Ray over them."""

    def __init__(self) -> None:
        if shutil.which("ip") is None:
            pytest.fail("these tests need the `ip` command: apt-get install iproute2")
        self.tag = f"{os.getpid() % 100_000}"
        self.bridge = f"rb{self.tag}"
        self.names = [f"roost{self.tag}-{number}" for number in range(len(ADDRESSES))]
        # Unix socket paths are short, so these lie directly in the temporary directory.
        self.directories = [tempfile.mkdtemp(prefix="rn-") for _ in ADDRESSES]
        self._started: list[subprocess.Popen[bytes]] = []
        # Ray refuses a port that any process of this machine names in its command line, so each Ray has another.
        self._head_port = 20_000 + os.getpid() % 10_000  # its workers have 10002-19999

    def create(self) -> None:
        ip("link", "add", self.bridge, "type", "bridge")
        ip("link", "set", self.bridge, "up")
        for number, (name, address) in enumerate(zip(self.names, ADDRESSES, strict=True)):
            ip("netns", "add", name)
            outer = f"rv{self.tag}{number}"
            ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", outer, "master", self.bridge, "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def inside(self, number: int) -> list[str]:
        """What to put before a command to run it on a host."""
        return ["ip", "netns", "exec", self.names[number]]

    def environment(self, number: int, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "ROOST_"))}
        return {
            **kept,
            "PYTHONPATH": module_path(),
            "RAY_TMPDIR": self.directories[number],
            "RAY_AUTH_MODE": "disabled",
            "RAY_raylet_start_wait_time_s": "120",
            **more,
        }

    @property
    def address(self) -> str:
        return f"{ADDRESSES[0]}:{self._head_port}"

    def start_ray(self, number: int, *arguments: str, **environ: str) -> None:
        """A node of Ray on that host; the first host has the head. It ends with `stop_ray`."""
        place = (
            ["--head", f"--port={self._head_port}", "--include-dashboard=false", "--no-monitor"]
            if number == 0
            else [f"--address={self.address}"]
        )
        log = Path(self.directories[number]) / "start.log"
        with log.open("wb") as output:
            self._started.append(
                subprocess.Popen(
                    [
                        *self.inside(number),
                        *(sys.executable, "-c", START, "start", "--block"),
                        f"--node-ip-address={ADDRESSES[number]}",
                        *place,
                        *("--dashboard-agent-listen-port=0", "--include-log-monitor=false"),
                        *("--num-cpus=2", *arguments),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self.environment(number, **environ),
                    start_new_session=True,
                )
            )
        self._until_started(log)

    def _until_started(self, log: Path) -> None:
        deadline = time.monotonic() + 120
        while "Ray runtime started" not in (text := log.read_text()):
            if self._started[-1].poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"Ray did not start on a host:\n{text}")
            time.sleep(0.1)

    def processes(self) -> list[psutil.Process]:
        """Everything that runs on the hosts."""
        found = []
        for name in self.names:
            told = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
            found += [psutil.Process(int(pid)) for pid in told.stdout.split() if psutil.pid_exists(int(pid))]
        return found

    def stop_ray(self) -> None:
        for process in self._started:
            process.send_signal(signal.SIGTERM)
        for process in self._started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._started.clear()
        self._head_port += 1
        left = self.processes()
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, 10)

    def remove(self) -> None:
        self.stop_ray()
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        for number in range(len(self.names)):
            subprocess.run(["ip", "link", "delete", f"rv{self.tag}{number}"], capture_output=True)
        subprocess.run(["ip", "link", "delete", self.bridge], capture_output=True)
        for directory in self.directories:
            shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class Told:
    """What a program on the hosts said and printed, and the address of its Ray."""

    said: dict[str, Any]
    output: str
    address: str


def drive(hosts: Hosts, nodes: int, plan: Path) -> Told:
    """Run the job on the head's host."""
    path = os.pathsep.join([module_path(), str(Path(__file__).parents[1] / "rl")])
    environ: dict[str, str | None] = {
        **hosts.environment(0),
        "RAY_ADDRESS": hosts.address,
        "PYTHONPATH": path,
    }
    program = Program("on_hosts", str(nodes), str(plan), env=environ, prefix=hosts.inside(0))
    try:
        said = program.answer(300)
        assert program.end(60) == 0
    finally:
        program.kill()
    return Told(said, program.output, hosts.address)
