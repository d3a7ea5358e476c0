"""Three hosts with addresses of their own: order, addresses and ports."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hosts import ADDRESSES, Hosts
from running import Program

pytestmark = [pytest.mark.ray, pytest.mark.netns]


def drive(hosts: Hosts, nodes: int, plan: Path, timeout: float = 60) -> tuple[dict[str, Any], str]:
    """Run the job on the head's host."""
    environ: dict[str, str | None] = {**hosts.environment(0), "RAY_ADDRESS": hosts.address}
    program = Program("on_hosts", str(nodes), str(timeout), str(plan), env=environ, prefix=hosts.inside(0))
    try:
        said = program.answer(120)
        assert program.end(60) == 0
    finally:
        program.kill()
    return said, program.output


Runs = dict[str, tuple[dict[str, Any], str]]


@pytest.fixture(scope="module")
def runs(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """What the job says with no declared ranks, with a node missing, and with ranks declared."""
    found: Runs = {}
    plan = tmp_path_factory.mktemp("hosts") / "plan.json"
    try:
        hosts.start_ray(0, "--num-gpus=2")
        hosts.start_ray(2, "--num-gpus=2")  # before the second
        hosts.start_ray(1, "--num-gpus=2", CUDA_VISIBLE_DEVICES="6,7")
        with ThreadPoolExecutor(2) as side_by_side:
            missing = side_by_side.submit(drive, hosts, 4, plan, timeout=1)
            found["natural"] = drive(hosts, 3, plan)
            found["missing"] = missing.result()
        hosts.stop_ray()
        for number, rank in enumerate("210"):  # one after the other: they share the head's directory
            hosts.start_ray(number, "--num-gpus=2", ROOST_NODE_RANK=rank)
        found["declared"] = drive(hosts, 3, plan)
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


def test_a_plan_saved_on_one_cluster_runs_on_another_with_other_addresses(runs: Runs) -> None:
    saved, launched = runs["natural"][0]["plan"], runs["declared"][0]["plan"]
    assert saved["saved for"] == ["10.77.0.200", "10.77.0.9", "10.77.0.10"]
    assert launched["digests"][0] == launched["digests"][1]
    assert launched["actor"] == [
        ["10.77.0.10"],
        ["10.77.0.9"],
    ]  # accelerator 1 is the first node's, 2 the second's
    assert launched["env"] == [["10.77.0.10"], ["10.77.0.9"], ["10.77.0.200"]]


def test_a_plan_of_another_shape_is_refused_node_by_node_before_anything_starts(runs: Runs) -> None:
    launched = runs["declared"][0]["plan"]
    assert launched["refused"] == [
        "node 1: the plan was made for 3 x nvidia_gpu, this cluster has 2 x nvidia_gpu",
        "node 2: the plan was made for no accelerators, this cluster has 2 x nvidia_gpu",
    ]
    assert launched["started"] == []
