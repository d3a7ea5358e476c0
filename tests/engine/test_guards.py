"""Mistakes a program can make with a cluster, and Rays that must not start by accident."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from crew import Reporter
from omegaconf import OmegaConf

import roost
from live import EndedJob

pytestmark = pytest.mark.ray


class Plain(roost.Worker):
    def __init__(self, given: Any = None) -> None:
        self.rank = 7  # a worker's own business
        self.given = given

    def ranks(self) -> tuple[int, int]:
        return self._rank, self.rank

    def wait_for(self, gate: str) -> None:
        threading.Event().wait()


@pytest.fixture(scope="module")
def group(cluster: roost.Cluster) -> Iterator[roost.WorkerGroup]:
    strategy = roost.PackedPlacementStrategy(0, 1)
    with Plain.create_group().launch(cluster, strategy, name="plain") as launched:
        yield launched


def test_workers_may_use_the_names_of_our_attributes(group: Any) -> None:
    assert group.ranks().wait(timeout=60) == [(0, 7), (1, 7)]
    assert group.execute_on(1, 0).ranks().wait(timeout=60) == [(0, 7), (1, 7)]  # in rank order


@pytest.mark.parametrize("timeout", ["5", True, float("nan"), [1]])
def test_a_timeout_is_a_number(group: Any, timeout: Any) -> None:
    with pytest.raises(roost.WorkerError, match="a timeout is a number of seconds or None"):
        group.ranks().wait(timeout=timeout)


def test_what_cannot_be_sent_is_said(cluster: Any, group: Any) -> None:
    with pytest.raises(roost.WorkerError, match="an argument cannot be sent"):
        group.wait_for(threading.Lock())
    with pytest.raises(roost.LaunchError, match="cannot be sent to other processes"):
        Plain.create_group(threading.Lock()).launch(cluster, roost.PackedPlacementStrategy(0, 1), name="x")


@pytest.mark.parametrize("number", [0, -1, "2", True, 1.5])
def test_num_nodes_is_a_whole_number(address: str, number: Any) -> None:
    with pytest.raises(roost.ConfigurationError, match="num_nodes"):
        roost.Cluster(num_nodes=number, address=address)


@pytest.mark.parametrize("gpu", ["0", True, 9, -1])
def test_allocate_wants_an_accelerator_that_exists(cluster: Any, gpu: Any) -> None:
    with pytest.raises(roost.ClusterError, match="accelerators 0-3"):
        cluster.allocate(dict, "somebody", 0, gpu)


def test_a_section_of_a_config_refers_to_the_rest_of_it() -> None:
    whole = OmegaConf.create(
        {"n": 1, "v": "yes", "cluster": {"num_nodes": "${n}", "node_groups": [_group("${v}")]}}
    )
    with roost.Cluster(cluster_cfg=whole.cluster, inline="1x2") as cluster:
        assert cluster.num_nodes == 1
        assert dict(cluster.inventory.environment("g", 0).env_vars) == {"NAME": "yes"}
    broken = OmegaConf.create({"cluster": {"num_nodes": "${nothing}"}})
    with pytest.raises(roost.ConfigurationError, match=r"cannot resolve '\$\{nothing\}'"):
        roost.Cluster(cluster_cfg=broken.cluster, inline="1x2")


def _group(value: str) -> dict[str, Any]:
    return {"label": "g", "node_ranks": 0, "env_configs": [{"node_ranks": 0, "env_vars": {"NAME": value}}]}


def test_nothing_starts_a_ray_once_the_cluster_is_shut_down(ended_job: EndedJob) -> None:
    own, connected = ended_job.cluster, ray.is_initialized()
    for use in (
        lambda: own.allocate(dict, "nobody", 0, 0),
        lambda: own.attach_group("ended"),
        lambda: Reporter.create_group().launch(own, roost.PackedPlacementStrategy(3, 3)),
    ):
        with pytest.raises(roost.ClusterError, match="was shut down"):
            use()
    assert ray.is_initialized() == connected


def test_a_deadline_that_has_passed_is_no_time_left(group: Any) -> None:
    """The last use of the group: the call never ends."""
    with pytest.raises(roost.CallTimeout):
        group.wait_for("ever").wait(timeout=-5)
