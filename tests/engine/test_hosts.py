"""On hosts with addresses of their own: order, addresses and ports are those of the right host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
from hosts import SETTINGS, Hosts
from running import Program

pytestmark = [pytest.mark.ray, pytest.mark.netns]

HEAD, SECOND, THIRD = "10.77.0.9", "10.77.0.10", "10.77.0.2"  # as text, .10 would come before .2


@pytest.fixture(scope="module", autouse=True)
def _able() -> None:
    missing = "root" if os.geteuid() else "" if shutil.which("ip") else "the `ip` command (package iproute2)"
    if missing and os.environ.get("CI") != "true":
        pytest.skip(f"hosts of their own need {missing}")
    assert not missing, f"hosts of their own need {missing}"


@pytest.fixture(scope="module")
def hosts(_able: None) -> Iterator[Hosts]:
    with Hosts({"head": HEAD, "second": SECOND, "third": THIRD}) as made:
        yield made


@pytest.fixture
def driver() -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(hosts: Hosts, num_nodes: int = 3, timeout: float = 60) -> Program:
        env = {**SETTINGS, "RAY_ADDRESS": hosts.address, "ROOST_JOB": None}
        program = Program("on_hosts", str(num_nodes), str(timeout), env=env, prefix=hosts.on("head"))
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()


def test_order_addresses_and_ports(hosts: Hosts, driver: Callable[..., Program]) -> None:
    """Pitfall: addresses sorted as text, and the port of a group looked for on the wrong host."""
    program = driver(hosts)
    layout, told, peers, managers = (program.answer() for _ in range(4))
    assert program.end() == 0
    assert layout == {"nodes": [HEAD, THIRD, SECOND], "master": HEAD}
    assert [worker["ip"] for worker in told] == [THIRD, THIRD, SECOND, SECOND]
    assert {worker["MASTER_ADDR"] for worker in told} == {THIRD}
    assert len({worker["MASTER_PORT"] for worker in told}) == 1
    assert [worker["CLUSTER_NODE_RANK"] for worker in told] == ["1", "1", "2", "2"]
    assert [worker["NODE_RANK"] for worker in told] == ["0", "0", "1", "1"]
    assert [worker["CUDA_VISIBLE_DEVICES"] for worker in told] == ["0", "1", "0", "1"]
    assert peers == [THIRD] * 3  # reached from the same host and from the other one
    assert managers == [HEAD] * 3
    assert "warning[RW201]" in program.output
    assert "RAY_AUTH_MODE=token" in program.output


def test_missing_nodes_are_named_with_the_command_to_run(
    hosts: Hosts, driver: Callable[..., Program]
) -> None:
    program = driver(hosts, num_nodes=4, timeout=2)
    assert program.end() == 1
    assert "error[RE104]: 3 of 4 nodes are here after 2 s" in program.output
    for address in (HEAD, SECOND, THIRD):
        assert address in program.output
    assert f"ray start --address={hosts.address}" in program.output


def test_declared_ranks_decide_the_order(driver: Callable[..., Program]) -> None:
    names = {"head": HEAD, "second": SECOND, "third": THIRD}
    ranks = {"head": "2", "second": "0", "third": "1"}
    with Hosts(names, variables={name: {"ROOST_NODE_RANK": rank} for name, rank in ranks.items()}) as hosts:
        program = driver(hosts)
        layout, told, peers, managers = (program.answer() for _ in range(4))
        assert program.end() == 0
    assert layout == {"nodes": [SECOND, THIRD, HEAD], "master": SECOND}
    assert [worker["ip"] for worker in told] == [THIRD, THIRD, HEAD, HEAD]
    assert peers == [THIRD] * 3
    assert managers == [SECOND] * 3  # node 0, which is not the head here
