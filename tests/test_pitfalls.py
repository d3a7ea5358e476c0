"""Where existing systems go wrong when they place, one test each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import roost
from roost import Inventory
from roost.inventory.nodes import Accelerators
from roost.inventory.ordering import NodeInfo, order_nodes
from roost.inventory.resources import Resources


def job(placement: Any, **cluster: Any) -> dict[str, Any]:
    return {"cluster": {"component_placement": {"w": placement}, **cluster}}


def placed(placement: Any, shape: str, **cluster: Any) -> list[roost.Placement]:
    return roost.plan(job(placement, **cluster), Inventory.parse(shape)).components["w"].placements


def test_no_device_3_on_a_node_of_3() -> None:
    inventory = Inventory.parse("2x3")
    for strategy in (
        roost.PackedPlacementStrategy(0, 5),
        roost.PackedPlacementStrategy.from_master(num_nodes=2),
        roost.ChunkedPlacementStrategy(3),
        roost.FineGrainedPackedPlacementStrategy(num_gpus=6),
    ):
        used = [
            device for place in strategy.get_placement(inventory) for device in place.local_hardware_ranks
        ]
        assert used == [0, 1, 2, 0, 1, 2]
    with pytest.raises(roost.PlacementError):
        roost.PackedPlacementStrategy(0, 6).get_placement(inventory)
    with pytest.raises(roost.PlacementError):
        roost.FineGrainedPackedPlacementStrategy(master_gpu=3, num_gpus=1).get_placement(inventory)


def test_model_parallel_honours_node_groups() -> None:
    config = {
        "cluster": {
            "component_placement": {
                "actor": {"node_group": "a", "placement": "0-7"},
                "rollout": {"node_group": "b", "placement": "0-7"},
            },
            "node_groups": [{"label": "a", "node_ranks": 0}, {"label": "b", "node_ranks": 1}],
        }
    }
    both = roost.ModelParallelComponentPlacement(config, Inventory.parse("2x8"))
    assert both.is_disaggregated
    nodes = {
        name: {place.cluster_node_rank for place in both.get_placements(name)} for name in both.components
    }
    assert nodes == {"actor": {0}, "rollout": {1}}


def test_without_isolation_each_process_keeps_its_own_accelerator() -> None:
    strategy = roost.PackedPlacementStrategy(0, 7)
    placements = strategy.get_placement(Inventory.parse("1x8"), isolate_accelerator=False)
    assert [place.local_accelerator_rank for place in placements] == list(range(8))
    assert all(len(place.visible_accelerators) == 8 for place in placements)


def test_node_groups_may_be_listed_against_node_order() -> None:
    groups = [{"label": "late", "node_ranks": 1}, {"label": "early", "node_ranks": 0}]
    placements = placed({"node_group": "late,early", "placement": "0-15"}, "2x8", node_groups=groups)
    assert [place.cluster_node_rank for place in placements] == [1] * 8 + [0] * 8
    assert [place.placement_node_rank for place in placements] == [0] * 8 + [1] * 8


def test_lists_of_groups_and_of_node_ranks() -> None:
    groups = [{"label": "a", "node_ranks": [0, 1]}, {"label": "b", "node_ranks": ["2", "3-4"]}]
    placements = placed({"node_group": ["a", "b"], "placement": "all"}, "5x2", node_groups=groups)
    assert [place.cluster_node_rank for place in placements] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [place.node_group_label for place in placements] == ["a"] * 4 + ["b"] * 6


def test_unquoted_pairs_are_read_as_written(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("cluster:\n  component_placement:\n    a: 1:0\n    b: 4:0\n    c: 0-1:0\n")
    plan = roost.plan(file, Inventory.parse("1x8"))
    held = {name: part.placements[0].local_hardware_ranks for name, part in plan.components.items()}
    assert held == {"a": [1], "b": [4], "c": [0, 1]}


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(roost.ConfigurationError, match="did you mean 'node_groups'"):
        placed("0", "1x8", node_group=[{"label": "a", "node_ranks": 0}])


def test_processes_that_do_not_start_at_0_are_refused() -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        placed("0-3:4-7", "1x8")
    assert caught.value.codes == ("RL104",)


def test_rank_lookups_stay_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    look_up = Resources.slot_of

    def counting(self: Resources, rank: int) -> Any:
        nonlocal calls
        calls += 1
        return look_up(self, rank)

    monkeypatch.setattr(Resources, "slot_of", counting)
    inventory = Inventory.parse("1024x8")
    for strategy in (
        roost.PackedPlacementStrategy(0, 8191),
        roost.FlexiblePlacementStrategy([[rank] for rank in range(8192)]),
    ):
        calls = 0
        assert len(strategy.get_placement(inventory)) == 8192
        assert calls <= 8192
    calls = 0
    roost.plan({"cluster": {"component_placement": {"a,b": "all", "c": "0-8191:0-16383"}}}, inventory)
    assert calls <= 2 * 16384


@pytest.mark.parametrize("shape", ["1x8", "2x8", "3x8"])
def test_a_process_of_12_does_not_fit_nodes_of_8(shape: str) -> None:
    inventory = Inventory.parse(shape)
    with pytest.raises(roost.PlacementError):
        roost.PackedPlacementStrategy(0, 11, num_hardware_per_process=12).get_placement(inventory)
    with pytest.raises(roost.PlacementError):
        placed("0-11:0", shape)
    with pytest.raises(roost.PlacementError):
        roost.ChunkedPlacementStrategy(12).get_placement(inventory)


def test_device_10_comes_after_device_2() -> None:
    strategy = roost.FlexiblePlacementStrategy([[10, 2], [11], [9]])
    placements = strategy.get_placement(Inventory.parse("1x16"))
    assert [place.visible_accelerators for place in placements] == [["2", "10"], ["9"], ["11"]]
    assert [place.visible_accelerators[0] for place in placed("all", "1x12")] == [str(n) for n in range(12)]


def node(ip: str, **more: Any) -> NodeInfo:
    name = more.pop("node_id", ip)
    return NodeInfo(node_id=name, ip=ip, hostname="", accelerators=Accelerators(count=0), **more)


def test_addresses_are_ordered_as_numbers() -> None:
    facts = [node("10.0.0.10"), node("10.0.0.9"), node("fe80::a"), node("fe80::9"), node("10.0.0.100")]
    ordered = [fact.ip for fact in order_nodes(facts)]
    assert ordered == ["10.0.0.9", "10.0.0.10", "10.0.0.100", "fe80::9", "fe80::a"]


def test_node_ids_do_not_decide_the_order() -> None:
    one = [node("10.0.0.2", node_id="zz"), node("10.0.0.1", node_id="yy", is_master=True)]
    other = [node("10.0.0.2", node_id="aa"), node("10.0.0.1", node_id="bb", is_master=True)]
    assert [fact.ip for fact in order_nodes(one)] == [fact.ip for fact in order_nodes(other)]
