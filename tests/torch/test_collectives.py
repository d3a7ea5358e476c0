"""torch.distributed on the environment roost sets."""

from __future__ import annotations

from typing import Any

import pytest

import roost

pytestmark = [pytest.mark.torch, pytest.mark.ray]


class Reducer(roost.Worker):
    def total(self) -> float:
        import torch.distributed as dist

        import torch

        dist.init_process_group()  # everything it needs is in the environment
        try:
            value = torch.tensor([float(self.rank + 1)])
            dist.all_reduce(value)
            return float(value.item())
        finally:
            dist.destroy_process_group()

    def backend_and_size(self) -> tuple[str, int]:
        import torch.distributed as dist

        dist.init_process_group("gloo")
        try:
            return dist.get_backend(), dist.get_world_size()
        finally:
            dist.destroy_process_group()


@pytest.fixture(scope="module")
def cluster() -> Any:
    with roost.embedded("2x2") as address, roost.Cluster(num_nodes=2, address=address) as connected:
        yield connected


def test_process_groups_form_without_arguments_on_4_ranks_over_2_nodes(cluster: Any) -> None:
    with Reducer.create_group().launch(cluster, roost.PackedPlacementStrategy(0, 3), name="first") as group:
        assert {place.cluster_node_rank for place in group.placements} == {0, 1}
        assert group.total().wait(timeout=120) == [10.0] * 4
        # The port is still leased to this group, so it can rendezvous again.
        assert group.total().wait(timeout=120) == [10.0] * 4


def test_two_groups_rendezvous_at_the_same_time(cluster: Any) -> None:
    strategy = roost.PackedPlacementStrategy(0, 3, num_hardware_per_process=2)
    with (
        Reducer.create_group().launch(cluster, strategy, name="left") as left,
        Reducer.create_group().launch(cluster, strategy, name="right") as right,
    ):
        answers = [left.backend_and_size(), right.backend_and_size()]
        assert [answer.wait(timeout=120) for answer in answers] == [[("gloo", 2)] * 2] * 2
