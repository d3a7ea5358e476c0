"""Three hosts with addresses of their own: order, addresses and ports."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hosts import ADDRESSES, Hosts
from running import Program

pytestmark = [pytest.mark.ray, pytest.mark.netns]


def drive(hosts: Hosts, nodes: int, timeout: float = 60) -> tuple[dict[str, Any], str]:
    """Run the job on the head's host."""
    environ: dict[str, str | None] = {**hosts.environment(0), "RAY_ADDRESS": hosts.address}
    program = Program("on_hosts", str(nodes), str(timeout), env=environ, prefix=hosts.inside(0))
    try:
        said = program.answer(120)
        assert program.end(60) == 0
    finally:
        program.kill()
    return said, program.output


Runs = dict[str, tuple[dict[str, Any], str]]


@pytest.fixture(scope="module")
def runs(hosts: Hosts) -> Runs:
    """What the job says with no declared ranks, with a node missing, and with ranks declared."""
    found: Runs = {}
    try:
        hosts.start_ray(0, "--num-gpus=2")
        hosts.start_ray(2, "--num-gpus=2")  # before the second
        hosts.start_ray(1, "--num-gpus=2", CUDA_VISIBLE_DEVICES="6,7")
        with ThreadPoolExecutor(2) as side_by_side:
            missing = side_by_side.submit(drive, hosts, 4, timeout=1)
            found["natural"] = drive(hosts, 3)
            found["missing"] = missing.result()
        hosts.stop_ray()
        for number, rank in enumerate("210"):  # one after the other: they share the head's directory
            hosts.start_ray(number, "--num-gpus=2", ROOST_NODE_RANK=rank)
        found["declared"] = drive(hosts, 3)
    finally:
        hosts.stop_ray()  # the next module starts another Ray on these hosts
    return found


def test_the_head_is_first_and_the_rest_by_address_as_numbers(runs: Runs) -> None:
    """Pitfall: IPs sort as strings."""
    said, _ = runs["natural"]
    assert said["nodes"] == ["10.77.0.200", "10.77.0.9", "10.77.0.10"]
    assert said["nodes"][1:] != sorted(said["nodes"][1:])
    assert said["accelerators"] == [2, 2, 2]
    assert said["master"][0] == "10.77.0.200"


def test_ranks_run_on_the_hosts_of_their_nodes(runs: Runs) -> None:
    said, _ = runs["natural"]
    assert said["own addresses"] == [["10.77.0.9"], ["10.77.0.9"], ["10.77.0.10"]]
    assert [rank["CLUSTER_NODE_RANK"] for rank in said["seen"]] == ["1", "1", "2"]


def test_accelerators_of_a_masked_node_keep_their_names(runs: Runs) -> None:
    said, _ = runs["natural"]
    assert [rank["CUDA_VISIBLE_DEVICES"] for rank in said["seen"]] == ["6", "7", "0"]


def test_the_group_meets_at_the_host_of_its_rank_0(runs: Runs) -> None:
    said, _ = runs["natural"]
    assert {rank["MASTER_ADDR"] for rank in said["seen"]} == {"10.77.0.9"}
    assert said["met"] == [["rank 0"], ["10.77.0.10"]]


def test_the_port_is_held_on_that_host_and_no_other(runs: Runs) -> None:
    said, _ = runs["natural"]
    assert said["held where"] == [False, False, True]


def test_a_network_without_authentication_is_warned_of(runs: Runs) -> None:
    _, output = runs["natural"]
    assert "RW201" in output
    assert "Ray at 10.77.0.200:6399 takes commands from anyone who can reach it" in output
    assert "RAY_AUTH_MODE=token" in output


def test_declared_ranks_turn_the_order_around(runs: Runs) -> None:
    said, _ = runs["declared"]
    assert said["nodes"] == ["10.77.0.10", "10.77.0.9", "10.77.0.200"]
    assert said["master"][0] == "10.77.0.10"
    assert said["own addresses"] == [["10.77.0.9"], ["10.77.0.9"], ["10.77.0.200"]]
    assert {rank["MASTER_ADDR"] for rank in said["seen"]} == {"10.77.0.9"}


def test_a_missing_host_is_refused_with_the_names_of_the_others(runs: Runs) -> None:
    """Pitfall: waiting for nodes with no deadline and no diagnosis."""
    said, output = runs["missing"]
    assert said["codes"] == ["RE104"]
    assert "3 of 4 nodes are here after 1 s" in said["error"]
    for address in ADDRESSES:
        assert f"({address})" in said["error"]
    assert "ray start --address=10.77.0.200:6399" in said["error"]
    assert "on each of the 1 missing" in said["error"]
    assert "waiting for nodes, 3 of 4 are here" in output
