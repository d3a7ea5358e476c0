"""Worker processes of an embedded Ray are copies of one that has imported Ray already."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from running import eventually, module_path

import roost
from roost.engine.connection import embedded
from roost.engine.health.machine_inspection import _orphans
from roost.engine.processes.process_facts import raylet_of
from roost.engine.ray_backend import worker_forker

pytestmark = pytest.mark.ray


class Process:
    """An actor that knows its process."""

    def __init__(self) -> None:
        self.modules = set(sys.modules)

    def imported(self) -> list[str]:
        """The modules that were imported since its constructor ran."""
        return sorted(sys.modules.keys() - self.modules)

    def facts(self) -> dict[str, Any]:
        import random

        return {
            "pid": os.getpid(),
            "parent": " ".join(psutil.Process().parent().cmdline()),
            "leads its group": os.getpgid(0) == os.getpid(),
            "random": (random.random(), ray._raylet.UniqueID.from_random().hex()),
            "forker": os.environ.get("ROOST_FORKER"),
            "child signal": signal.getsignal(signal.SIGCHLD),
            "memory score": Path("/proc/self/oom_score_adj").read_text(),
            "NEW": os.environ.get("NEW"),
        }

    def forker(self) -> int:
        return os.getppid()


def facts(count: int = 1, **options: Any) -> list[dict[str, Any]]:
    actors = [ray.remote(Process).options(num_cpus=0, **options).remote() for _ in range(count)]
    told = ray.get([actor.facts.remote() for actor in actors], timeout=120)
    for actor in actors:
        ray.kill(actor)
    return told


def test_workers_are_copies_with_random_numbers_of_their_own(connected: str) -> None:
    told = facts(3)
    assert all("worker_forker.py" in one["parent"] for one in told)
    assert all(one["leads its group"] for one in told)  # Ray kills the groups of workers that have ended
    assert {(one["forker"], one["child signal"]) for one in told} == {(None, signal.SIG_DFL)}
    assert len({number for one in told for number in one["random"]}) == 6


def test_copies_have_what_ray_imports_when_it_pickles(connected: str) -> None:
    actor = ray.remote(Process).options(num_cpus=0).remote()
    ray.get(actor.forker.remote(), timeout=120)  # the first value that the process pickles
    assert ray.get(actor.imported.remote(), timeout=120) == []
    ray.kill(actor)


def test_a_worker_with_a_runtime_env_has_a_process_of_its_own(connected: str) -> None:
    (copy,), (told,) = facts(), facts(runtime_env={"env_vars": {"NEW": "1"}})
    assert told["NEW"] == "1"
    assert told["memory score"] == copy["memory score"]
    assert "raylet" in told["parent"]
    assert "worker_forker.py" not in told["parent"]


def test_a_copy_belongs_to_its_node(connected: str) -> None:
    actor = ray.remote(Process).options(num_cpus=0).remote()
    pid = ray.get(actor.facts.remote(), timeout=120)["pid"]
    assert raylet_of(pid) in (process.pid for process in psutil.process_iter() if process.name() == "raylet")
    assert raylet_of(os.getpid()) is None
    assert pid not in dict(_orphans())  # `roost doctor` would advise to kill them
    ray.kill(actor)


def test_an_ended_copy_leaves_no_zombie(connected: str) -> None:
    (told,) = facts()
    eventually(lambda: not psutil.pid_exists(told["pid"]), 60, "the system collects an ended copy")


KILLED = """
import os, signal, sys
import ray
from test_forked_workers import Process, facts

ray.init(address=sys.argv[1], log_to_driver=False)
forker = ray.get(ray.remote(Process).options(num_cpus=0).remote().forker.remote(), timeout=120)
os.kill(forker, signal.SIGKILL)
print(*("raylet" in one["parent"] for one in facts(4)))  # some may have been forked before
"""


def test_without_its_forker_a_node_starts_ordinary_processes() -> None:
    environment = {**os.environ, "PYTHONPATH": module_path()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", module_path())
        ray_of_one_node = roost.embedded("1x1")
        address = ray_of_one_node.start()
    try:
        done = subprocess.run(
            [sys.executable, "-c", KILLED, address],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        ray_of_one_node.stop()
    assert done.returncode == 0, done.stderr
    assert "True" in done.stdout


def test_a_process_that_no_longer_waits_gets_no_copy() -> None:
    """It has started a worker in the ordinary way, or was killed."""
    asking, forker = socket.socketpair()
    with forker:
        with asking:
            asking.sendall(b"an order")
            assert worker_forker.is_waiting(forker)
        assert not worker_forker.is_waiting(forker)


def test_half_an_order_leaves_no_descriptor_open() -> None:
    asking, forker = socket.socketpair()
    read, write = os.pipe()
    with forker, os.fdopen(read, "rb") as output:
        with asking:
            socket.send_fds(asking, [(100).to_bytes(4, "big")], [write] * 3)
            asking.sendall(b'["--node')
        os.close(write)
        with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
            worker_forker.received(forker)
        os.set_blocking(read, False)
        assert output.read() == b""  # the end: nobody can write to it


class Nodes:
    """Notes the nodes that it should start."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def add_node(self, **arguments: Any) -> None:
        self.asked.append(arguments)


def test_forks_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROOST_FORKED_WORKERS", "0")
    nodes = Nodes()
    assert embedded._add_node(nodes, str(tmp_path), 0, {"num_gpus": 4}) is None
    assert nodes.asked == [{"wait": True, "num_gpus": 4}]
    assert not list(tmp_path.iterdir())
