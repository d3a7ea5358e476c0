"""What strategies and rules refuse, and that what they suggest instead is right."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

import roost
from roost.config.document import parse


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

    def findings(text: str) -> tuple[roost.Finding, ...]:
        try:
            roost.plan({"cluster": {"component_placement": {"a": text}}}, inventory)
        except roost.ConfigurationError as error:
            return error.findings
        return ()

    found = findings(",".join(parts))
    if [finding.code for finding in found] != ["RP103"] or not found[0].remedy:
        return  # right as it is, or more than one thing wrong
    allowed = {"RP102"} if len(cuts) > 1 else set()  # whether the others span nodes is said only then
    for suggestion in found[0].remedy.removeprefix("use ").split(", or "):
        assert {finding.code for finding in findings(suggestion)} <= allowed, suggestion


@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    start=st.integers(0, 8),
    width=st.integers(2, 12),
    count=st.integers(1, 4),
)
def test_every_suggestion_for_a_torn_process_is_valid(
    sizes: list[int], start: int, width: int, count: int
) -> None:
    inventory = roost.Inventory.parse(",".join(f"1x{size}" for size in sizes))

    def problems(processes: list[range]) -> list[roost.Finding]:
        try:
            roost.FlexiblePlacementStrategy(processes).get_placement(inventory)
        except roost.PlacementError as error:
            return list(error.findings)
        return []

    end = start + width * count
    processes = [range(first, first + width) for first in range(start, end, width)]
    found = problems(processes)
    if [finding.code for finding in found] != ["RP102"]:
        return
    for suggestion in found[0].remedy.split(", or "):
        number = int(re.findall("[0-9]+", suggestion)[0])
        if suggestion.startswith("start it at"):
            assert not problems([*processes[:-1], range(number, number + width)]), suggestion
        else:
            assert suggestion.startswith("give each process ")
            assert width % number == 0
            assert not problems([range(first, first + number) for first in range(start, end, number)]), sizes


@given(
    actor=st.tuples(st.integers(0, 15), st.integers(0, 15)),
    rollout=st.tuples(st.integers(0, 15), st.integers(0, 15)),
    hole=st.booleans(),
    inference=st.sampled_from([None, "0-1", "14-15"]),
)
def test_every_suggestion_for_actor_and_rollout_is_valid(
    actor: tuple[int, int], rollout: tuple[int, int], hole: bool, inference: str | None
) -> None:
    first, last = sorted(rollout)
    scattered = hole and last - first > 1
    rules = {
        "actor": f"{min(actor)}-{max(actor)}",
        "rollout": f"{first},{first + 2}-{last}" if scattered else f"{first}-{last}",
        **({"inference": inference} if inference else {}),
    }

    def problems(rollout: str) -> list[roost.Finding]:
        config = {
            "cluster": {"component_placement": {**rules, "rollout": rollout}},
            "algorithm": {"recompute_logprobs": True},
        }
        try:
            roost.ModelParallelComponentPlacement(config, roost.Inventory.parse("2x8"))
        except roost.ConfigurationError as error:
            return [finding for finding in error.findings if finding.path[2:3] == ("rollout",)]
        return []

    for finding in problems(rules["rollout"]):
        for suggestion in re.findall("[0-9]+-?[0-9]*", finding.remedy):
            assert not problems(suggestion), (rules, finding.remedy)


# -- bounds, remedies, and what is said together ---------------------------------------------------------


def job(rules: Any, **cluster: Any) -> dict[str, Any]:
    return {"cluster": {"component_placement": rules, **cluster}}


def refused(source: Any, on: Any = "2x8", **more: Any) -> roost.ConfigurationError:
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.plan(source, on, **more)
    return caught.value


def test_the_bound_on_processes_counts_all_segments_and_components() -> None:
    most = 50_000 + 64 * (1 + 2)
    half = most // 2
    whole = f"0:0-{half - 1},1:{half}-{most - 1}"
    assert roost.plan(job({"w": whole}), "1x2").components["w"].world_size == most
    assert list(roost.plan(job({"a,b": f"0:0-{half - 1}"}), "1x2").components) == ["a", "b"]
    for rules in ({"w": f"0:0-{half - 1},1:{half}-{most}"}, {"a": whole, "b": "0"}, {"a,b": f"0:0-{half}"}):
        assert refused(job(rules), "1x2").codes == ("RL106",)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        *((job({"w": ranks}), "RP108") for ranks in (247, "247", 60)),
        *((job({"w": ranks}), "RP101") for ranks in (59, "240-247", "0,247", "247:0")),
        (parse("cluster: {component_placement: {w: 247}}"), "RP101"),
    ],
)
def test_only_a_number_handed_in_can_be_one_yaml_rewrote(source: Any, code: str) -> None:
    assert refused(source).codes == (code,)


@pytest.mark.parametrize(
    ("arguments", "on", "remedy"),
    [
        ((3, 8, 6), "2x8", "start it at resource 8, or give each process 1 resource"),
        ((2, 9, 8), "2x8", "start it at resource 8, or give each process 2 resources"),
        ((0, 4, 2), "2x8", "use 0-3 or 0-5"),
        ((2, 2, 2), "2x8", "use 2-3"),
        ((0, 16), "2x8", "end at 15 or before"),
        ((0, 99_999_999), "2x8", "end at 15 or before"),
        ((0, 99), "2x0", "use NodePlacementStrategy for bare nodes, or a group with accelerators"),
    ],
)
def test_what_packing_suggests(arguments: tuple[int, ...], on: str, remedy: str) -> None:
    with pytest.raises(roost.PlacementError) as caught:
        roost.PackedPlacementStrategy(*arguments).get_placement(on)
    assert [finding.remedy for finding in caught.value.findings] == [remedy]


@pytest.mark.parametrize("ranks", [[range(-1, 2)], [range(0)], [b"01"], b"01", [range(1)] * 2_000_001])
def test_ranges_bytes_and_too_many(ranks: Any) -> None:
    with pytest.raises(roost.PlacementError):
        roost.FlexiblePlacementStrategy(ranks)


@pytest.mark.parametrize(("ranks", "on"), [([[8], [15, 16]], "2x8"), ([[7, 8]], "1x8")])
def test_beyond_the_last_node(ranks: Any, on: str) -> None:
    with pytest.raises(roost.PlacementError) as caught:
        roost.FlexiblePlacementStrategy(ranks).get_placement(on)
    assert caught.value.codes == ("RP101",)


@pytest.mark.parametrize(
    ("text", "on", "remedy"),
    [
        (
            "0-2:0-3,3-5:4-6,6-7",
            "1x8",
            "use 0-2:0-2,3-5:3-5,6-7, or 0-2:0-5,3-5:6-8,6-7, or 0-1:0-3,3-5:4-6,6-7",
        ),
        ("0-1,2-4:2-5,5", "1x8", "use 0-1,2-4:2-4,5, or 0-1,2-4:2-7,5, or 0-1,2-3:2-5,5"),
        ("0-5:0-3", "2x3", "use 0-5:0-1, or 0-5:0-5, or 0-3:0-3"),
    ],
)
def test_suggestions_keep_the_other_segments(text: str, on: str, remedy: str) -> None:
    assert refused(job({"a": text}), on).findings[0].remedy == remedy


@pytest.mark.parametrize(
    ("cluster", "codes"),
    [
        ({"num_nodes": "two", "component_placement": {"a": "7-0"}}, ["RC103", "RL102"]),
        # What follows from another problem is not said.
        ({"component_placement": {"a,b": "0-99"}}, ["RP101"]),
        ({"component_placement": {"a, b c": "0-99"}}, ["RC105"]),
        ({"component_placement": {"actor": "0-99"}, "layout": {"colocate": True}}, ["RC106"]),
        ({"component_placement": {"a": {"placement": 0, "x": 1}, "b": 0}, "shares": {"a": 0.5}}, ["RC101"]),
        ({"component_placement": {"b": 0}, "layout": {"colocate": 3}, "shares": {"actor": 0.5}}, ["RC103"]),
        (
            {
                "component_placement": {"a": {"node_group": "g", "placement": "0-99"}},
                "node_groups": [{"label": "g", "node_ranks": 9, "env_configs": [{"node_ranks": 1}]}],
            },
            ["RI104"],
        ),
        (
            {
                "num_nodes": 4,
                "component_placement": {"a": 0},
                "node_groups": [{"label": "g", "node_ranks": 9}],
            },
            ["RI104", "RI108"],
        ),
        (
            {"layout": {"colocate": True, "node_group": "g"}, "node_groups": [{"label": "g", "x": 1}]},
            ["RC101", "RC102"],
        ),
        ({"component_placement": {"a, b": 0}, "shares": {"b": 0.5}}, []),
        (
            {
                "component_placement": {"a": {"node_group": "g", "placement": 0}},
                "node_groups": [{"label": " g ", "node_ranks": 0}],
            },
            [],
        ),
    ],
)
def test_what_is_said_together(cluster: dict[str, Any], codes: list[str]) -> None:
    found: list[str] = []
    try:
        roost.plan({"cluster": cluster}, "2x8")
    except roost.ConfigurationError as error:
        found = [finding.code for finding in error.findings if finding.severity == "error"]
    assert sorted(found) == codes
