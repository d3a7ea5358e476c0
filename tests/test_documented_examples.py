"""The examples the placement language and the strategies are known by, each with all its placements."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import roost
from roost import Inventory

Seat = tuple[int, list[int]]  # node, and accelerators or other resources on it


def seats(placements: list[roost.Placement]) -> list[Seat]:
    assert [place.rank for place in placements] == list(range(len(placements)))
    return [(place.cluster_node_rank, place.local_hardware_ranks) for place in placements]


def planned(tmp_path: Path, text: str, inventory: Inventory) -> roost.Plan:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    return roost.plan(file, inventory)


def test_every_row_of_the_table_names_a_test() -> None:
    here = Path(__file__).parent
    rows = re.findall(r"^\| (?!what |---)(.*) \|$", (here / "older_documents.md").read_text(), re.MULTILINE)
    assert len(rows) > 70
    for row in rows:
        (where,) = re.findall(r"`(\S+\.py::\w+)`$", row)
        file, name = where.split("::")
        found = {
            one.name for one in ast.parse((here / file).read_text()).body if isinstance(one, ast.FunctionDef)
        }
        assert name in found, row


# -- the two forms of a component's placement ------------------------------------------------------------


def test_short_form_shares_one_rule(tmp_path: Path) -> None:
    text = """
cluster:
  num_nodes: 1
  component_placement:
    actor,inference: 0-7
"""
    plan = planned(tmp_path, text, Inventory.parse("1x8"))
    assert list(plan.components) == ["actor", "inference"]
    for component in plan.components.values():
        assert seats(component.placements) == [(0, [device]) for device in range(8)]
    assert all(len(uses) == 2 for uses in plan.shared.values())
    assert len(plan.shared) == 8


NODE_GROUP_FORM = """
cluster:
  num_nodes: 5
  component_placement:
    actor:
      node_group: a800
      placement: 0-8
    rollout:
      node_group: 4090
      placement: 0-8
    env:
      node_group: robot
      placement: 0-3:0-7
    agent:
      node_group: node
      placement: 0-1:0-200,2-3:201-511
  node_groups:
    - label: a800
      node_ranks: 0-1
    - label: 4090
      node_ranks: 2-3
    - label: robot
      node_ranks: 4
      hardware:
        type: Franka
        configs:
          - {node_rank: 4, robot_ip: 10.0.0.1}
          - {node_rank: 4, robot_ip: 10.0.0.2}
          - {node_rank: 4, robot_ip: 10.0.0.3}
          - {node_rank: 4, robot_ip: 10.0.0.4}
"""


def test_node_group_form(tmp_path: Path) -> None:
    plan = planned(tmp_path, NODE_GROUP_FORM, Inventory.parse("2x8:A800,2x8:4090,1x0"))
    actor, rollout, env, agent = plan.components.values()
    assert seats(actor.placements) == [*((0, [device]) for device in range(8)), (1, [0])]
    assert seats(rollout.placements) == [*((2, [device]) for device in range(8)), (3, [0])]
    assert seats(env.placements) == [(4, [robot]) for robot in range(4) for _ in range(2)]
    assert [place.node_group_label for place in actor.placements] == ["a800"] * 9
    assert [place.accelerator_type for place in env.placements] == ["none"] * 8
    assert [(place.visible_accelerators, place.local_accelerator_rank) for place in env.placements] == [
        ([], -1)
    ] * 8
    assert agent.world_size == 512


def test_the_node_group_form_as_printed_lacks_its_groups(tmp_path: Path) -> None:
    """Pages show it with two nodes, without the groups that it names, and with agents on nodes 2 and 3."""
    text = NODE_GROUP_FORM.replace("num_nodes: 5", "num_nodes: 2").split("  node_groups:")[0]
    with pytest.raises(roost.ConfigurationError) as caught:
        planned(tmp_path, text, Inventory.parse("2x8"))
    assert [finding.what for finding in caught.value.findings if finding.code[1] != "W"] == [
        "actor: unknown node group 'a800'",
        "rollout: unknown node group '4090'",
        "env: unknown node group 'robot'",
        "agent: node 3 does not exist",
    ]


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        (
            "cluster:\n    num_nodes: 1\n    actor,inference: 0-7\n",
            "unknown key 'actor,inference'",
            "write it under `component_placement`: `component_placement: {'actor,inference': 0-7}`",
        ),
        (
            "cluster:\nnum_nodes: 2\ncomponent_placement:\n    actor:\n        node_group: a800\n        placement: 0-8\n",
            "`component_placement` stands at the top level",
            "move it under `cluster:`, and indent it",
        ),
    ],
)
def test_forms_that_stand_in_the_wrong_place(tmp_path: Path, text: str, what: str, remedy: str) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        planned(tmp_path, text, Inventory.parse("1x8"))
    assert caught.value.findings[0].what == what
    assert remedy in (caught.value.findings[0].remedy or "")


@pytest.mark.parametrize("placement", ["0-3:4-7", "0-1:0-1,2-3:3-4", "0-1:0-1,2-3:1-2", "0-2:0-1", "0-3:0-2"])
def test_wrong_ranks_are_assertion_errors(placement: str) -> None:
    with pytest.raises(AssertionError):
        roost.plan({"cluster": {"component_placement": {"w": placement}}}, Inventory.parse("1x8"))


def test_agents_on_nodes_split_unevenly_with_a_warning(tmp_path: Path) -> None:
    plan = planned(tmp_path, NODE_GROUP_FORM, Inventory.parse("2x8:A800,2x8:4090,1x0"))
    agent = plan.components["agent"].placements
    on_node = [[place.rank for place in agent if place.cluster_node_rank == node] for node in range(4)]
    assert on_node == [
        list(range(101)),  # 201 on two nodes: the first takes one more
        list(range(101, 201)),
        list(range(201, 357)),  # 311 on two nodes
        list(range(357, 512)),
    ]
    assert all(place.local_hardware_ranks == [] for place in agent)
    assert all(place.visible_accelerators == [str(number) for number in range(8)] for place in agent)
    uneven = [finding for finding in plan.findings if finding.code == "RW101"]
    assert [finding.what for finding in uneven] == [
        "agent: 201 processes over 2 nodes are uneven",
        "agent: 311 processes over 2 nodes are uneven",
    ]


def test_mixed_segments() -> None:
    config = {"cluster": {"component_placement": {"worker": "0-1:0-3,3-5,7-10:7-14"}}}
    plan = roost.plan(config, Inventory.parse("1x16"))
    devices = [place.local_hardware_ranks[0] for place in plan.components["worker"].placements]
    assert devices == [0, 0, 1, 1, 3, 4, 5, 7, 7, 8, 8, 9, 9, 10, 10]


def test_omitted_processes_continue() -> None:
    config = {"cluster": {"component_placement": {"worker": "0-3,4-7"}}}
    plan = roost.plan(config, Inventory.parse("2x4"))
    assert seats(plan.components["worker"].placements) == [(n, [d]) for n in (0, 1) for d in range(4)]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("0-3:0-7", [[0], [0], [1], [1], [2], [2], [3], [3]]),
        ("0-4", [[0], [1], [2], [3], [4]]),
        ("0-7:0-3", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("all", [[number] for number in range(8)]),
        ("all:0", [list(range(8))]),
    ],
)
def test_shares_of_one_node(placement: str, expected: list[list[int]]) -> None:
    plan = roost.plan({"cluster": {"component_placement": {"w": placement}}}, Inventory.parse("1x8"))
    assert [place.local_hardware_ranks for place in plan.components["w"].placements] == expected


def test_single_group_config_file(tmp_path: Path) -> None:
    text = """
cluster:
  num_nodes: 1
  component_placement:
    test_worker:
      node_group: a800
      placement: 0-3
  node_groups:
    - label: a800
      node_ranks: 0
"""
    plan = planned(tmp_path, text, Inventory.parse("1x8:A800"))
    placements = plan.components["test_worker"].placements
    assert seats(placements) == [(0, [0]), (0, [1]), (0, [2]), (0, [3])]
    assert {place.node_group_label for place in placements} == {"a800"}
    assert [place.visible_accelerators for place in placements] == [["0"], ["1"], ["2"], ["3"]]


def test_several_groups_count_on_from_each_other() -> None:
    config = {
        "cluster": {
            "component_placement": {"w": {"node_group": "a800,4090", "placement": "0-15"}},
            "node_groups": [{"label": "a800", "node_ranks": 0}, {"label": 4090, "node_ranks": 1}],
        }
    }
    placements = roost.plan(config, Inventory.parse("1x8:A800,1x8:4090")).components["w"].placements
    assert seats(placements) == [(n, [d]) for n in (0, 1) for d in range(8)]
    assert [place.node_group_label for place in placements] == ["a800"] * 8 + ["4090"] * 8


# -- strategies ------------------------------------------------------------------------------------------


def devices(strategy: Any, shape: str, **more: Any) -> list[Seat]:
    return seats(strategy.get_placement(Inventory.parse(shape), **more))


def test_flexible() -> None:
    strategy = roost.FlexiblePlacementStrategy([[0, 1], [2], [3]])
    placements = strategy.get_placement(Inventory.parse("1x4"))
    assert [len(place.visible_accelerators) for place in placements] == [2, 1, 1]
    assert seats(placements) == [(0, [0, 1]), (0, [2]), (0, [3])]


def test_packed() -> None:
    assert devices(roost.PackedPlacementStrategy(0, 3), "1x8") == [(0, [0]), (0, [1]), (0, [2]), (0, [3])]


def test_packed_two_each() -> None:
    strategy = roost.PackedPlacementStrategy(
        start_hardware_rank=0, end_hardware_rank=3, num_hardware_per_process=2
    )
    assert devices(strategy, "1x8") == [(0, [0, 1]), (0, [2, 3])]


def test_packed_strided() -> None:
    strategy = roost.PackedPlacementStrategy(0, 3, stride=2, num_hardware_per_process=2)
    assert devices(strategy, "1x8") == [(0, [0, 2]), (0, [1, 3])]


def test_packed_strided_in_blocks() -> None:
    strategy = roost.PackedPlacementStrategy(0, 7, num_hardware_per_process=2, stride=2)
    assert devices(strategy, "1x8") == [(0, [0, 2]), (0, [1, 3]), (0, [4, 6]), (0, [5, 7])]


def test_packed_with_a_stride_of_three() -> None:
    strategy = roost.PackedPlacementStrategy(0, 8, num_hardware_per_process=3, stride=3)
    assert devices(strategy, "1x9") == [(0, [0, 3, 6]), (0, [1, 4, 7]), (0, [2, 5, 8])]


def test_node_strategy() -> None:
    placements = roost.NodePlacementStrategy([0] * 4).get_placement(Inventory.parse("1x8"))
    assert [place.local_rank for place in placements] == [0, 1, 2, 3]
    assert [place.local_world_size for place in placements] == [4] * 4
    assert all(place.visible_accelerators == [str(number) for number in range(8)] for place in placements)


def test_default_packing_fills_nodes_in_turn() -> None:
    strategy = roost.PackedPlacementStrategy.from_master(num_nodes=2)
    assert devices(strategy, "2x4") == [(node, [device]) for node in (0, 1) for device in range(4)]


def test_packing_by_number_of_processes() -> None:
    strategy = roost.PackedPlacementStrategy.from_master(
        master_node=0, master_gpu=2, num_processes=3, num_gpus_per_process=2
    )
    assert devices(strategy, "2x4") == [(0, [2, 3]), (1, [0, 1]), (1, [2, 3])]


def test_packing_takes_exactly_one_of_the_two_counts() -> None:
    for both_or_none in ({}, {"num_nodes": 1, "num_processes": 1}):
        with pytest.raises(roost.PlacementError, match="exactly one"):
            roost.PackedPlacementStrategy.from_master(**both_or_none)


def test_chunked() -> None:
    strategy = roost.ChunkedPlacementStrategy(num_gpus_per_process=2)
    assert devices(strategy, "1x8") == [(0, [0, 1]), (0, [2, 3]), (0, [4, 5]), (0, [6, 7])]


def test_chunked_leaves_what_is_over() -> None:
    assert devices(roost.ChunkedPlacementStrategy(3), "1x8") == [(0, [0, 1, 2]), (0, [3, 4, 5])]


def test_strided() -> None:
    strategy = roost.StridedPlacementStrategy(master_node=0, num_nodes=1, stride=2, num_gpus_per_process=2)
    assert devices(strategy, "1x8") == [(0, [0, 2]), (0, [1, 3]), (0, [4, 6]), (0, [5, 7])]


def test_strided_over_two_nodes() -> None:
    strategy = roost.StridedPlacementStrategy(master_node=1, num_nodes=2, stride=2, num_gpus_per_process=2)
    assert devices(strategy, "3x4") == [(1, [0, 2]), (1, [1, 3]), (2, [0, 2]), (2, [1, 3])]


def test_fine_grained_crosses_into_the_next_node() -> None:
    strategy = roost.FineGrainedPackedPlacementStrategy(master_node=0, master_gpu=2, num_gpus=3)
    assert devices(strategy, "2x4") == [(0, [2]), (0, [3]), (1, [0])]
    open_view = strategy.get_placement(Inventory.parse("2x4"), isolate_accelerator=False)
    assert [place.visible_accelerators for place in open_view] == [["0", "1", "2", "3"]] * 3
    assert [place.local_accelerator_rank for place in open_view] == [2, 3, 0]


@pytest.mark.parametrize(
    "strategy", [roost.ChunkedPlacementStrategy(2), roost.StridedPlacementStrategy(0, 1, 2, 2)]
)
def test_chunked_and_strided_need_isolation(strategy: Any) -> None:
    with pytest.raises(roost.PlacementError, match="isolate_accelerator=True"):
        strategy.get_placement(Inventory.parse("1x8"), isolate_accelerator=False)


def test_older_names_of_a_placement() -> None:
    place = roost.PackedPlacementStrategy(5, 5).get_placement(Inventory.parse("2x4"))[0]
    assert (place.node_id, place.node_rank, place.local_gpu_id) == (1, 0, 1)
    assert (place.cuda_visible_devices, place.isolate_gpu) == (["1"], True)
    with pytest.raises((AttributeError, TypeError)):  # which of them depends on Python's version
        place.node_id = 3  # type: ignore[misc]
