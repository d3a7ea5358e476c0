"""`roost doctor` finds faults that the test makes, on this machine and on a Ray of two nodes.

What cannot be made here is judged by its facts alone, in test_diagnosis.py: devices that Ray does not count, another
version of Python, and different tokens, with which a node would not join.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from running import module_path, roost_command

import roost
from roost.engine.connection.embedded import FORKED_WORKERS, EmbeddedCluster
from roost.engine.health.diagnosis import FEW_PORTS
from roost.engine.ports.port_ranges import ALLOWED, ephemeral_ports

SECOND_PORTS = "21000-21009"
# In a process of its own, which may not wait for a silent node as long as the command does.
INSPECT = """
import json, sys
from roost.engine.operating.cluster_inspection import inspect_cluster
found = inspect_cluster(sys.argv[1], timeout=8.0)
print(json.dumps([len(found.nodes), [one.code for one in found.findings]]))
"""


def doctor(*words: str, prefix: Sequence[str] = (), **environ: str) -> dict[str, list[str]]:
    """What `roost doctor` finds, by code. `prefix` is what to put before the command."""
    done = subprocess.run(
        [*prefix, *roost_command("doctor", "--json", *words)],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, list[str]] = {}
    for one in json.loads(done.stdout)["findings"]:
        found.setdefault(one["code"], []).append(f"{one['what']}; {one.get('why', '')}")
    assert done.returncode == bool(found)
    return found


# -- this machine --------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))


def test_ports_that_the_kernel_gives_to_any_connection() -> None:
    kernels = ephemeral_ports()
    found = doctor(ROOST_PORT_RANGE=f"{kernels.start}-{kernels.stop - 1}")
    assert "0 ports to lease" in found["RW221"][0]


def test_a_port_that_is_taken() -> None:
    """One port of as many as a node needs."""
    blocks = range(ALLOWED.start, ephemeral_ports().start - FEW_PORTS, FEW_PORTS)
    ranges = {first: f"{first}-{first + FEW_PORTS - 1}" for first in blocks}
    free = next(first for first in ranges if "RW221" not in doctor(ROOST_PORT_RANGE=ranges[first]))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free))
        taken.listen()
        found = doctor(ROOST_PORT_RANGE=ranges[free])
    assert "ports to lease outside the kernel's" in found["RW221"][0]


def test_an_old_ray(tmp_path: Path) -> None:
    folder = tmp_path / "ray-2.48.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ray\nVersion: 2.48.1\n")
    found = doctor(PYTHONPATH=f"{tmp_path}{os.pathsep}{module_path()}")
    assert "Ray 2.48.1 is too old" in found["RE102"][0]


@pytest.mark.netns  # it needs root, too
def test_a_small_shared_memory() -> None:
    mounted = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'
    found = doctor(prefix=["unshare", "--mount", "sh", "-c", mounted, "sh"])
    assert "/dev/shm has 64 MiB" in found["RW223"][0]


# -- a Ray of two nodes --------------------------------------------------------------------------------------


class FaultyCluster(EmbeddedCluster):
    """The second of its two nodes has an environment of its own."""

    def __init__(self, first: dict[str, str], second: dict[str, str]) -> None:
        super().__init__("2x0")
        self._environments = (first, second)

    def _nodes_args(self) -> list[dict[str, Any]]:
        nodes = zip(super()._nodes_args(), self._environments, strict=True)
        return [{**arguments, "env_vars": environ} for arguments, environ in nodes]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    """Both nodes have rank 0. The second has another roost, a clock that is ahead, few ports, and no auth mode."""
    folder = tmp_path_factory.mktemp("second")
    shutil.copytree(Path(roost.__file__).parent, folder / "roost")
    init = folder / "roost" / "__init__.py"
    init.write_text(init.read_text().replace(f'__version__ = "{roost.__version__}"', '__version__ = "0.0.1"'))
    (folder / "sitecustomize.py").write_text(
        "import time\n_time = time.time\ntime.time = lambda: _time() + 100\n"
    )
    path = f"{folder}{os.pathsep}{module_path()}"
    first = {"ROOST_NODE_RANK": "0"}
    second = {**first, "PYTHONPATH": path, "ROOST_PORT_RANGE": SECOND_PORTS, "RAY_AUTH_MODE": ""}
    nodes = FaultyCluster(first, second)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", module_path())
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv(FORKED_WORKERS, "0")  # each worker has the environment of its node
        nodes.start()
    yield nodes
    nodes.stop()


@pytest.mark.ray
def test_nodes_that_contradict_each_other(faulty: FaultyCluster) -> None:
    found = doctor("--address", faulty.address)
    assert "(127.0.0.2): 0, " in found["RE105"][0]
    assert "100.0 s apart" in found["RW220"][0]
    assert "different versions of roost" in found["RE152"][0]
    assert "disabled on 127.0.0.2; unset on" in found["RE153"][0]
    assert "10 ports to lease" in found["RW221"][0]


@pytest.mark.ray
def test_nodes_that_do_not_take_the_callers_token(faulty: FaultyCluster) -> None:
    found = doctor("--address", faulty.address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="x" * 64)
    assert ["cannot be asked" in one for one in found["RE104"]] == [True, True]


@pytest.mark.ray
def test_a_node_that_is_stopped(faulty: FaultyCluster) -> None:
    second = next(
        process
        for process in psutil.process_iter(["name", "environ"])
        if process.info["name"] == "raylet"
        and (process.info["environ"] or {}).get("RAY_TMPDIR") == faulty._directory
        and process.info["environ"].get("ROOST_PORT_RANGE") == SECOND_PORTS
    )
    second.send_signal(signal.SIGSTOP)
    try:
        done = subprocess.run(
            [sys.executable, "-c", INSPECT, faulty.address], capture_output=True, text=True, check=False
        )
    finally:
        second.send_signal(signal.SIGCONT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [1, ["RE104"]]


@pytest.mark.ray
@pytest.mark.netns
def test_a_ray_on_the_network_and_a_node_without_a_rank(hosts: Any) -> None:
    try:
        hosts.start_ray(0, ROOST_NODE_RANK="0")
        hosts.start_ray(1)
        found = doctor("--address", hosts.address, prefix=hosts.inside(0), RAY_AUTH_MODE="disabled")
    finally:
        hosts.stop_ray()
    assert "takes commands from anyone" in found["RW201"][0]
    assert "(10.77.0.9): unset" in found["RE105"][0]
