"""What strategies and rules refuse, and that what they suggest instead is right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

import roost


class Index:
    """Like an integer of numpy."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Array:
    """Like an array of numpy."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def tolist(self) -> list[Any]:
        return self.values

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


def test_whole_numbers_and_arrays_of_any_kind_are_taken() -> None:
    inventory = roost.Inventory.parse("1x4")
    plain = roost.FlexiblePlacementStrategy([[0, 1], [2]]).get_placement(inventory)
    assert (
        roost.FlexiblePlacementStrategy([[Index(0), Index(1)], [Index(2)]]).get_placement(inventory) == plain
    )
    assert roost.FlexiblePlacementStrategy(Array([[0, 1], [2]])).get_placement(inventory) == plain
    assert roost.PackedPlacementStrategy(Index(0), Index(3)).get_placement(inventory)[3].rank == 3


@pytest.mark.parametrize("ranks", [5, "01", None, {0: 1}, [5], ["0"], [[True]], [[0.0]], [[-1]]])
def test_anything_else_is_a_placement_error(ranks: Any) -> None:
    with pytest.raises(roost.PlacementError):
        roost.FlexiblePlacementStrategy(ranks)
    with pytest.raises(roost.PlacementError):
        roost.NodePlacementStrategy(ranks if not isinstance(ranks, list) else [ranks])


def test_a_master_without_accelerators_is_refused() -> None:
    inventory = roost.Inventory.parse("1x3,1x0,1x1")
    with pytest.raises(roost.PlacementError, match="node 1 has no accelerators"):
        roost.PackedPlacementStrategy.from_master(1, 0, num_processes=1).get_placement(inventory)
    with pytest.raises(roost.PlacementError, match="node 1 has no accelerators"):
        roost.StridedPlacementStrategy(1, 2).get_placement(inventory)
    with pytest.raises(roost.PlacementError, match="master_gpu 3 does not exist on node 0"):
        roost.PackedPlacementStrategy.from_master(0, 3, num_processes=1).get_placement(inventory)


def test_groups_that_share_a_node_count_nothing_twice() -> None:
    groups = [{"label": "a", "node_ranks": "0"}, {"label": "b", "node_ranks": "0-1"}]
    inventory = roost.Inventory.parse("2x8").grouped(groups)
    with pytest.raises(roost.ConfigurationError, match="node 0 is in both 'a' and 'b'"):
        roost.PackedPlacementStrategy(4, 11, node_group="a,b").get_placement(inventory)
    for strategy in (
        roost.FlexiblePlacementStrategy([[0], [8]], "a,a"),
        roost.NodePlacementStrategy([0, 1], ["a", "a"]),
    ):
        with pytest.raises(roost.ConfigurationError, match="'a' is named twice"):
            strategy.get_placement(inventory)


def test_node_groups_may_be_any_list() -> None:
    groups = [{"label": "a", "node_ranks": 1}, {"label": "b", "node_ranks": 0}]
    inventory = roost.Inventory.parse("2x2").grouped(groups)
    plain = roost.FlexiblePlacementStrategy([[0], [2]], ["a", "b"]).get_placement(inventory)
    assert [place.cluster_node_rank for place in plain] == [1, 0]
    for labels in ("a,b", ("a", "b"), OmegaConf.create(["a", "b"])):
        assert roost.FlexiblePlacementStrategy([[0], [2]], labels).get_placement(inventory) == plain


def test_two_groups_of_robots_on_one_node_are_different_robots() -> None:
    def arms(label: str) -> dict[str, Any]:
        hardware = {"type": "Arm", "configs": [{"node_rank": 0, "robot_ip": label}]}
        return {"label": label, "node_ranks": 0, "hardware": hardware}

    job = {
        "cluster": {
            "component_placement": {"env": {"node_group": "left,right", "placement": "0-1"}},
            "node_groups": [arms("left"), arms("right")],
        }
    }
    plan = roost.plan(job, roost.Inventory.parse("1x0"))
    assert len(plan.occupancy) == 2
    assert not plan.shared
    both = roost.FlexiblePlacementStrategy([[0, 1]], "left,right")
    with pytest.raises(roost.PlacementError, match=r"would hold Arm of both left and right \(0-1\)"):
        both.get_placement(plan.inventory)


@pytest.mark.parametrize("name", ["accelerator", "node"])
def test_robots_are_not_called_what_is_counted_anyway(name: str) -> None:
    group = {"label": "r", "node_ranks": 0, "hardware": {"type": name, "configs": [{"node_rank": 0}]}}
    with pytest.raises(roost.ConfigurationError, match="is not the name of a hardware type"):
        roost.Inventory.parse("1x2").grouped([group])


def test_process_ranks_that_do_nothing_are_mentioned() -> None:
    job = {"cluster": {"component_placement": {"actor": "0-7:0-3", "rollout": "8-15"}}}
    plan = roost.plan(job, roost.Inventory.parse("2x8"), placement=roost.ModelParallelComponentPlacement)
    assert [finding.code for finding in plan.findings] == ["RW107"]
    assert plan.components["actor"].world_size == 8


@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    cuts=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), min_size=1, max_size=3),
)
def test_every_suggestion_is_valid(sizes: list[int], cuts: list[tuple[int, int]]) -> None:
    inventory = roost.Inventory.parse(",".join(f"1x{size}" for size in sizes))
    parts, resource, process = [], 0, 0
    for width, count in cuts:
        ranks = f"{resource}-{resource + width - 1}"
        parts.append(f"{ranks}:{process}-{process + count - 1}" if count else ranks)
        resource, process = resource + width, process + (count or width)

    def plan(text: str) -> list[str]:
        try:
            roost.plan({"cluster": {"component_placement": {"a": text}}}, inventory)
        except roost.ConfigurationError as error:
            return [finding.remedy for finding in error.findings if finding.code == "RP103"]
        return []

    remedies = plan(",".join(parts))
    if len(remedies) != 1 or not remedies[0].startswith("use "):
        return  # right as it is, or more than one thing wrong
    for suggestion in remedies[0].removeprefix("use ").split(", or "):
        assert not plan(suggestion), suggestion
