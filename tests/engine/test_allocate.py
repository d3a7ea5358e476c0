"""One actor of a plain class, on one node and one accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray
from crew import Plain
from running import alive, eventually

import roost
from live import EndedJob
from roost.engine.backend import AllocationOrder
from roost.engine.ray_backend import allocation

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
    again = ray.get_actor("plain-one", namespace=roost.Cluster.NAMESPACE)
    assert ray.get(again.arguments.remote(), timeout=60) == ((1, "two"), {"three": 3})
    assert ray.get(handle.later.remote(5), timeout=60) == 5


def test_its_environment_is_set_before_its_class_is_loaded(handle: Any) -> None:
    names = ("FLAVOUR", "COUNT", "CUDA_VISIBLE_DEVICES")
    expected = {"FLAVOUR": "mint", "COUNT": "3", "CUDA_VISIBLE_DEVICES": "2"}
    assert ray.get(handle.environment.remote(*names), timeout=60) == expected
    assert ray.get(handle.environment_at_import.remote(*names), timeout=60) == expected


def test_its_accelerator_is_reserved(cluster: Any, handle: Any) -> None:
    assert (1, 2) in cluster._backend.reservation.held
    ray.get(handle.arguments.remote(), timeout=60)
    node = cluster.node_infos[1].node_id
    free = lambda: ray._private.state.available_resources_per_node()[node].get("GPU", 0)  # noqa: E731
    eventually(lambda: free() == 3, 30, "Ray counts it as taken")


def test_on_the_class_it_means_the_open_cluster_and_the_callers_own_visible_devices_win(
    cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roost.Cluster, "_made", {cluster.job: cluster})
    own = {"CUDA_VISIBLE_DEVICES": "0,1"}
    handle = roost.Cluster.allocate(Plain, "through-the-class", 1, 0, own, cls_args=[7])
    assert ray.get(handle.arguments.remote(), timeout=60) == ((7,), {})
    assert ray.get(handle.node_id.remote(), timeout=60) == cluster.node_infos[1].node_id
    assert ray.get(handle.environment.remote(*own), timeout=60) == own


def test_on_the_class_in_a_process_that_attached(
    cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roost.Cluster, "_made", {})
    monkeypatch.setattr(roost.Cluster, "_attached", {})
    with roost.Cluster(job=cluster.job):
        handle = roost.Cluster.allocate(Plain, "by-an-attached-one", 1, 1, {}, cls_args=[8])
        assert ray.get(handle.arguments.remote(), timeout=60) == ((8,), {})
    with pytest.raises(ray.exceptions.RayActorError):  # it ended with what its process had started
        ray.get(handle.arguments.remote(), timeout=60)
    with pytest.raises(roost.ClusterError, match=r"none open(?s:.)*or attach to a running job: Cluster\(\)"):
        roost.Cluster.allocate(Plain, "late", 1, 1, {})


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


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"A=B": "1"}, "'A=...' is not a variable name"),
        ({"": "x"}, "'' is not a variable name"),
        ({"A": None}, "the value of A must be text or a number"),
        ({"A": "a\0b"}, "the value of A holds a NUL character"),
        (["A"], "a mapping of names to values, not a list"),
    ],
)
def test_variables_that_no_process_can_have(cluster: roost.Cluster, variables: Any, says: str) -> None:
    before = set(cluster._backend.reservation.held)  # type: ignore[attr-defined]
    with pytest.raises(roost.ConfigurationError, match=says) as caught:
        cluster.allocate(Plain, "never-made", 2, 3, variables)
    assert caught.value.codes == ("RC103",)
    assert set(cluster._backend.reservation.held) == before  # type: ignore[attr-defined]


def test_a_name_is_taken(cluster: roost.Cluster, handle: Any) -> None:
    with pytest.raises(roost.ClusterError, match="'plain-one' exists already") as caught:
        cluster.allocate(Plain, "plain-one", 0, None, {})
    assert caught.value.codes == ("RE115",)


def test_a_name_that_ray_has_not_forgotten_yet_is_asked_for_again(
    cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [ValueError("the name is taken")]

    class Remembered:
        def options(self, **_: Any) -> Remembered:
            return self

        def remote(self, *_: Any) -> str:
            if refusals:
                raise refusals.pop()
            return "made"

    monkeypatch.setattr(allocation, "allocated_actor", lambda cls: Remembered())
    (place,) = roost.NodePlacementStrategy([0]).get_placement(cluster)
    order = AllocationOrder(name="again", cls=Plain, place=place, variables={}, args=(), kwargs={})
    assert allocation.start_allocated(order, cluster.node_infos[0].node_id, ()) == "made"


def test_it_ends_with_the_cluster(ended_job: EndedJob) -> None:
    def gone() -> bool:
        named = ray.util.list_named_actors(all_namespaces=True)
        return not [actor for actor in named if actor["name"] == ended_job.actor]

    eventually(gone, 30, "the actor ended")
    eventually(lambda: not alive(ended_job.actor_pid), 30, "and its process")
