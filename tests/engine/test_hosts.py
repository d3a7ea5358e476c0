"""Hosts with addresses of their own: order, addresses and ports."""

from __future__ import annotations

import pytest
from hosts import ADDRESSES, Told

pytestmark = [pytest.mark.ray, pytest.mark.netns]


@pytest.fixture(scope="module")
def natural(on_hosts: dict[str, Told]) -> Told:
    """On three hosts that declare no ranks; the second calls its accelerators 8-15."""
    return on_hosts["natural"]


@pytest.fixture(scope="module")
def declared(on_hosts: dict[str, Told]) -> Told:
    """On two hosts, of which the head declares rank 1 and the other rank 0."""
    return on_hosts["declared"]


def test_the_head_is_first_and_the_rest_by_address_as_numbers(natural: Told) -> None:
    """Pitfall: IPs sort as strings."""
    said = natural.said
    assert said["nodes"] == ["10.77.0.200", "10.77.0.9", "10.77.0.10"]
    assert said["nodes"][1:] != sorted(said["nodes"][1:])
    assert said["accelerators"] == [8, 8, 8]
    assert said["master"][0] == "10.77.0.200"


def test_ranks_run_on_the_hosts_of_their_nodes(natural: Told) -> None:
    assert natural.said["own addresses"] == [["10.77.0.9"], ["10.77.0.10"]]
    assert [rank["CLUSTER_NODE_RANK"] for rank in natural.said["seen"]] == ["1", "2"]


def test_accelerators_of_a_masked_node_keep_their_names(natural: Told) -> None:
    assert [rank["CUDA_VISIBLE_DEVICES"] for rank in natural.said["seen"]] == ["9", "0"]


def test_the_group_meets_at_the_host_of_its_rank_0(natural: Told) -> None:
    assert {rank["MASTER_ADDR"] for rank in natural.said["seen"]} == {"10.77.0.9"}
    assert natural.said["met"] == [["rank 0"], ["10.77.0.10"]]


def test_the_port_is_held_on_that_host_and_no_other(natural: Told) -> None:
    assert natural.said["held where"] == [False, True]


def test_a_network_without_authentication_is_warned_of(natural: Told) -> None:
    assert "RW201" in natural.output
    assert f"Ray at {natural.address} takes commands from anyone who can reach it" in natural.output
    assert "RAY_AUTH_MODE=token" in natural.output


def test_a_program_that_probes_each_bundle_finds_the_same_order(natural: Told) -> None:
    probes = natural.said["probes"]  # Ray says the names of a masked node as texts
    assert probes["found"] == [
        ["10.77.0.200", 7],
        *(["10.77.0.9", "8"], ["10.77.0.9", "9"]),
        ["10.77.0.10", 0],
    ]
    assert probes["devices"] == [7, 8, 9, 0]
    # Such programs sort by address alone; here the master's accelerators come first.
    assert [*probes["bundles"][1:], *probes["bundles"][:1]] == probes["sorted"]


def test_declared_ranks_turn_the_order_around(declared: Told) -> None:
    said = declared.said
    assert said["nodes"] == ["10.77.0.9", "10.77.0.200"]
    assert said["master"][0] == "10.77.0.9"
    assert [rank["CLUSTER_NODE_RANK"] for rank in said["seen"]] == ["0", "1"]
    assert {rank["MASTER_ADDR"] for rank in said["seen"]} == {"10.77.0.9"}


def test_a_missing_host_is_refused_with_the_names_of_the_others(natural: Told) -> None:
    """Pitfall: waiting for nodes with no deadline and no diagnosis."""
    codes, error = natural.said["missing"]
    assert codes == ["RE104"]
    assert "3 of 4 nodes are here after 1 s" in error
    for address in ADDRESSES:
        assert f"({address})" in error
    assert f"ray start --address={natural.address}" in error
    assert "on each of the 1 missing" in error
    assert "waiting for nodes, 3 of 4 are here" in natural.output


def test_a_plan_saved_on_one_cluster_runs_on_another_with_other_addresses(
    natural: Told, declared: Told
) -> None:
    assert natural.said["saved for"] == ["10.77.0.200", "10.77.0.9"]
    launched = declared.said
    assert launched["digests"][0] == launched["digests"][1]
    # Accelerator 7 is the first node's, 8 the second's.
    assert launched["actor"] == [["10.77.0.9"], ["10.77.0.200"]]
    assert launched["env"] == [["10.77.0.200"]]


def test_a_plan_of_another_shape_is_refused_node_by_node_before_anything_starts(declared: Told) -> None:
    assert declared.said["refused"] == [
        "node 0: the plan was made for 9 x nvidia_gpu, this cluster has 8 x nvidia_gpu",
        "node 1: the plan was made for no accelerators, this cluster has 8 x nvidia_gpu",
    ]
    assert declared.said["started"] == []
