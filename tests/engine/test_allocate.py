"""One actor of a plain class, on one node and one accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray
from crew import Plain
from running import eventually

import roost

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def handle(cluster: roost.Cluster) -> Iterator[Any]:
    return cluster.allocate(
        Plain,
        worker_name="plain-one",
        node_id=1,
        gpu_id=2,
        env_vars={"FLAVOUR": "mint", "COUNT": 3},
        cls_args=[1, "two"],
        cls_kwargs={"three": 3},
    )


def test_it_is_pinned_named_and_constructed(cluster: Any, handle: Any) -> None:
    assert ray.get(handle.arguments.remote(), timeout=60) == ((1, "two"), {"three": 3})
    assert ray.get(handle.node_id.remote(), timeout=60) == cluster.node_infos[1].node_id
    again = ray.get_actor("plain-one")
    assert ray.get(again.arguments.remote(), timeout=60) == ((1, "two"), {"three": 3})
    assert ray.get(handle.later.remote(5), timeout=60) == 5


def test_its_environment_is_set_before_its_class_is_loaded(handle: Any) -> None:
    names = ("FLAVOUR", "COUNT", "CUDA_VISIBLE_DEVICES")
    expected = {"FLAVOUR": "mint", "COUNT": "3", "CUDA_VISIBLE_DEVICES": "2"}
    assert ray.get(handle.environment.remote(*names), timeout=60) == expected
    assert ray.get(handle.environment_at_import.remote(*names), timeout=60) == expected


def test_its_accelerator_is_reserved(cluster: Any, handle: Any) -> None:
    assert (1, 2) in cluster._backend.reservation.held
    with roost.Cluster(num_nodes=2, job=f"{cluster.job}-rival") as rival:
        with pytest.raises(roost.ReservationError, match=f"job '{cluster.job}' holds accelerator 2"):
            rival.allocate(Plain, "rival", 1, 2, {})
        rival.allocate(Plain, "rival", 1, 3, {})


def test_the_callers_own_visible_devices_win(cluster: roost.Cluster) -> None:
    handle = cluster.allocate(Plain, "own-view", 0, 1, {"CUDA_VISIBLE_DEVICES": "0,1"})
    seen = ray.get(handle.environment.remote("CUDA_VISIBLE_DEVICES"), timeout=60)
    assert seen == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_without_an_accelerator(cluster: Any) -> None:
    before = set(cluster._backend.reservation.held)
    handle = cluster.allocate(Plain, "no-device", 2, None)
    assert ray.get(handle.arguments.remote(), timeout=60) == ((), {})
    assert set(cluster._backend.reservation.held) == before


@pytest.mark.parametrize("node", [3, -1, "0", True])
def test_an_unknown_node_lists_what_exists(cluster: roost.Cluster, node: Any) -> None:
    with pytest.raises(roost.ClusterError) as caught:
        cluster.allocate(Plain, "nowhere", node, 0, {})
    assert caught.value.codes == ("RE114",)
    for rank in range(3):
        assert f"node {rank} (127.0.0.2): 4 accelerators" in str(caught.value)


@pytest.mark.parametrize("device", [4, -1])
def test_an_unknown_accelerator_lists_what_exists(cluster: roost.Cluster, device: int) -> None:
    with pytest.raises(roost.ClusterError, match="it has accelerators 0-3") as caught:
        cluster.allocate(Plain, "nowhere", 1, device, {})
    assert caught.value.codes == ("RE114",)


def test_a_name_is_taken(cluster: roost.Cluster, handle: Any) -> None:
    with pytest.raises(roost.ClusterError, match="'plain-one' exists already") as caught:
        cluster.allocate(Plain, "plain-one", 0, None, {})
    assert caught.value.codes == ("RE115",)


def test_it_ends_with_the_cluster(connected: str) -> None:
    with roost.Cluster(num_nodes=1, job="allocating") as cluster:
        cluster.allocate(Plain, "short-lived", 0, None, {})

    def gone() -> bool:
        named = ray.util.list_named_actors(all_namespaces=True)
        return not [actor for actor in named if actor["name"] == "short-lived"]

    eventually(gone, 30, "the actor ended")
