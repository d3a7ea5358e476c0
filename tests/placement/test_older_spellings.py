"""Names and arguments of older programs: thin, over the same code."""

from __future__ import annotations

from typing import Any

import pytest

import roost
from roost import (
    ChunkedPlacementStrategy,
    FineGrainedPackedPlacementStrategy,
    FlexiblePlacementStrategy,
    Inventory,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    StridedPlacementStrategy,
)

TWO_NODES = Inventory.parse("2x8")


def seats(placements: list[roost.Placement]) -> list[tuple[int, list[int]]]:
    return [(place.node_id, place.local_hardware_ranks) for place in placements]


@pytest.mark.parametrize(
    ("strategy", "nodes"),
    [
        (PackedPlacementStrategy(2, 9), 2),
        (PackedPlacementStrategy(2, 5), 1),
        (FlexiblePlacementStrategy([[0, 1], [9]]), 2),
        (NodePlacementStrategy([0, 0, 2]), 3),
        (PackedPlacementStrategy.from_master(1, 0, num_nodes=1), 2),
        (PackedPlacementStrategy.from_master(0, 6, num_processes=2, num_gpus_per_process=2), 2),
        (PackedPlacementStrategy.from_master(0, 6, num_processes=1, num_gpus_per_process=2), 1),
        (StridedPlacementStrategy(0, 2, 2, 2), 2),
    ],
)
def test_accelerators_per_node_in_place_of_a_cluster(strategy: Any, nodes: int) -> None:
    expected = strategy.get_placement(Inventory.uniform(nodes, 8))
    assert strategy.get_placement(8) == expected
    assert strategy.get_placement(8, True) == expected
    assert strategy.get_placement(num_gpus_per_node=8, isolate_gpu=True) == expected


def test_without_isolation_by_either_name() -> None:
    strategy = PackedPlacementStrategy(0, 3)
    seen = strategy.get_placement(TWO_NODES, isolate_gpu=False)
    assert (
        seen
        == strategy.get_placement(TWO_NODES, isolate_accelerator=False)
        == strategy.get_placement(8, False)
    )
    assert [place.local_gpu_id for place in seen] == [0, 1, 2, 3]
    assert all(place.cuda_visible_devices == [str(number) for number in range(8)] for place in seen)


def test_isolation_as_an_argument_of_the_strategy() -> None:
    """It is isolated unless the strategy or its caller says not to."""
    where = {"master_node": 0, "master_gpu": 2, "num_processes": 2, "num_gpus_per_process": 1}
    isolated = PackedPlacementStrategy(**where, isolate_gpu=True)  # type: ignore[call-arg]
    assert isolated.get_placement(8) == PackedPlacementStrategy.from_master(**where).get_placement(8)
    assert not any(place.isolate_gpu for place in isolated.get_placement(8, False))
    opened = PackedPlacementStrategy(**where, isolate_gpu=False)  # type: ignore[call-arg]
    assert opened.get_placement(8) == isolated.get_placement(8, False)
    for refused in (StridedPlacementStrategy(0, 1, 2, 2, False), ChunkedPlacementStrategy(2, False)):
        with pytest.raises(roost.PlacementError, match="needs isolate_accelerator=True"):
            refused.get_placement(TWO_NODES)
    with pytest.raises(roost.PlacementError, match="isolate_gpu must be True or False, not 0"):
        FineGrainedPackedPlacementStrategy(num_gpus=1, isolate_gpu=0)  # type: ignore[arg-type]


def test_chunks_of_an_unknown_number_of_nodes() -> None:
    with pytest.raises(roost.PlacementError, match="does not say on how many nodes") as caught:
        ChunkedPlacementStrategy(2).get_placement(8)
    assert "pass a cluster or an inventory" in str(caught.value)
    with pytest.raises(roost.ConfigurationError, match="num_gpus_per_node"):
        PackedPlacementStrategy(0, 3).get_placement(0)


def test_a_packed_strategy_from_its_first_node_by_keyword() -> None:
    by_keyword = PackedPlacementStrategy(master_node=1, master_gpu=4, num_processes=2)  # type: ignore[call-arg]
    assert isinstance(by_keyword, PackedPlacementStrategy)
    assert seats(by_keyword.get_placement(TWO_NODES)) == [(1, [4]), (1, [5])]
    with pytest.raises(roost.PlacementError, match="exactly one of num_nodes and num_processes"):
        PackedPlacementStrategy(master_node=0)  # type: ignore[call-arg]


def test_what_is_left_over_on_a_node_stays_unused() -> None:
    strategy = PackedPlacementStrategy.from_master(0, 3, num_nodes=2, num_gpus_per_process=2)
    assert seats(strategy.get_placement(TWO_NODES)) == [
        (0, [3, 4]),
        (0, [5, 6]),
        *((1, [first, first + 1]) for first in (0, 2, 4, 6)),
    ]
    # The same processes by their number: a node whose accelerators do not suffice for one more is exhausted.
    by_number = PackedPlacementStrategy.from_master(0, 3, num_processes=6, num_gpus_per_process=2)
    for where in (TWO_NODES, 8):
        assert seats(by_number.get_placement(where)) == seats(strategy.get_placement(TWO_NODES))
    with pytest.raises(
        roost.PlacementError, match="7 processes of 2 accelerators cannot be placed"
    ) as caught:
        PackedPlacementStrategy.from_master(0, 3, num_processes=7, num_gpus_per_process=2).get_placement(
            TWO_NODES
        )
    assert "6 fit from accelerator 3 of node 0 on" in str(caught.value)
    three = PackedPlacementStrategy.from_master(num_nodes=2, num_gpus_per_process=3)
    assert [place.node_id for place in three.get_placement(TWO_NODES)] == [0, 0, 1, 1]
    with pytest.raises(roost.PlacementError, match="more than any of these nodes has"):
        PackedPlacementStrategy.from_master(num_nodes=2, num_gpus_per_process=9).get_placement(TWO_NODES)
