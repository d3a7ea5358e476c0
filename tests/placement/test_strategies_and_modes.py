"""Strategies on their own, the modes of a job's components, and model-parallel layouts."""

from __future__ import annotations

from typing import Any

import pytest

import roost
from roost import (
    ComponentPlacement,
    FlexiblePlacementStrategy,
    HybridComponentPlacement,
    Inventory,
    ModelParallelComponentPlacement,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    PlacementMode,
)

TWO = Inventory.parse("2x8")


def held(placements: Any) -> list[tuple[int, list[int]]]:
    return [(place.cluster_node_rank, place.local_hardware_ranks) for place in placements]


# -- strategies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((3, 1), "RP105"),
        ((-1, 3), "RP105"),
        ((0, True), "RP105"),
        ((0, 3, 0), "RP105"),
        ((0, 3, 1, 0), "RP105"),
        ((0, 1.0), "RP105"),
        (("0", 3), "RP105"),
        ((0, 4, 2), "RP103"),
        ((0, 5, 2, 2), "RP103"),
        ((0, 16), "RP101"),
        ((16, 16), "RP101"),
        ((4, 11, 8), "RP102"),
        ((0, 15, 4, 4), "RP102"),
    ],
)
def test_wrong_packing(arguments: tuple[Any, ...], code: str) -> None:
    with pytest.raises(roost.PlacementError) as caught:
        PackedPlacementStrategy(*arguments).get_placement(TWO)
    assert caught.value.codes == (code,)


@pytest.mark.parametrize(
    ("ranks", "code"),
    [
        ([], "RP105"),
        ([[]], "RP105"),
        ([[0, 0]], "RP105"),
        ([0, 1], "RP105"),
        (["01"], "RP105"),
        ([[0, "1"]], "RP105"),
        ([[-1]], "RP105"),
        ([[7, 8]], "RP102"),
        ([[16]], "RP101"),
        ([[0], [15, 16]], "RP101"),
    ],
)
def test_wrong_flexible_lists(ranks: Any, code: str) -> None:
    with pytest.raises(roost.PlacementError) as caught:
        FlexiblePlacementStrategy(ranks).get_placement(TWO)
    assert caught.value.codes == (code,)


def test_a_placement_shows_itself_by_the_names_programs_use() -> None:
    place = roost.PackedPlacementStrategy(2, 3, 2).get_placement("1x4")[0]
    assert repr(place) == (
        "Placement(rank=0, cluster_node_rank=0, placement_node_rank=0, local_accelerator_rank=2, "
        "accelerator_type='nvidia_gpu', local_rank=0, local_world_size=1, visible_accelerators=['2', '3'], "
        "isolate_accelerator=True, local_hardware_ranks=[2, 3], node_group_label='cluster', kind='accelerator')"
    )


def test_flexible_lists_are_sorted() -> None:
    strategy = FlexiblePlacementStrategy([[9, 8], [3], [2, 0], [3]])
    assert held(strategy.get_placement(TWO)) == [(0, [0, 2]), (0, [3]), (0, [3]), (1, [0, 1])]


def test_all_offenders_are_reported_together() -> None:
    with pytest.raises(roost.PlacementError) as caught:
        FlexiblePlacementStrategy([[7, 8], [99], [6, 9]]).get_placement(TWO)
    assert caught.value.codes == ("RP101", "RP102")


@pytest.mark.parametrize(
    ("ranks", "code"), [([], "RP105"), ([-1], "RP105"), (["0"], "RP105"), ([2], "RP101")]
)
def test_wrong_node_lists(ranks: Any, code: str) -> None:
    with pytest.raises(roost.PlacementError) as caught:
        NodePlacementStrategy(ranks).get_placement(TWO)
    assert caught.value.codes == (code,)


def test_nodes_of_a_group_count_from_0() -> None:
    inventory = Inventory.parse("3x2").grouped([{"label": "late", "node_ranks": "1-2"}])
    placements = NodePlacementStrategy([1, 0, 1], "late").get_placement(inventory)
    assert [place.cluster_node_rank for place in placements] == [1, 2, 2]
    assert {place.node_group_label for place in placements} == {"late"}
    assert held(PackedPlacementStrategy(0, 3, 2, node_group="late").get_placement(inventory)) == [
        (1, [0, 1]),
        (2, [0, 1]),
    ]


def test_hardware_strategies_need_hardware() -> None:
    for strategy in (PackedPlacementStrategy(0, 0), FlexiblePlacementStrategy([[0]])):
        with pytest.raises(roost.PlacementError) as caught:
            strategy.get_placement(Inventory.parse("2x0"))
        assert caught.value.codes == ("RP104",)


@pytest.mark.parametrize("cluster", [None, 3.0, {"nodes": []}])
def test_a_strategy_needs_a_cluster(cluster: Any) -> None:
    with pytest.raises(roost.ConfigurationError, match="is neither a cluster nor an inventory") as caught:
        PackedPlacementStrategy(0, 0).get_placement(cluster)
    assert caught.value.codes == ("RC103",)


def test_anything_with_an_inventory_is_a_cluster() -> None:
    class Live:
        inventory = TWO

    assert held(PackedPlacementStrategy(8, 8).get_placement(Live())) == [(1, [0])]


@pytest.mark.parametrize(
    "make",
    [
        lambda: roost.ChunkedPlacementStrategy(0),
        lambda: roost.ChunkedPlacementStrategy("2"),  # type: ignore[arg-type]
        lambda: roost.ChunkedPlacementStrategy(17).get_placement(TWO),
        lambda: roost.StridedPlacementStrategy(2, 1).get_placement(TWO),
        lambda: roost.StridedPlacementStrategy(1, 2).get_placement(TWO),
        lambda: roost.StridedPlacementStrategy(0, 1, 3, 2).get_placement(TWO),
        lambda: roost.FineGrainedPackedPlacementStrategy(),
        lambda: roost.FineGrainedPackedPlacementStrategy(0, 8, 1).get_placement(TWO),
        lambda: roost.FineGrainedPackedPlacementStrategy(1, 0, 9).get_placement(TWO),
        lambda: PackedPlacementStrategy.from_master(master_node=-1, num_nodes=1),
        lambda: PackedPlacementStrategy.from_master(num_processes=0),
        lambda: PackedPlacementStrategy.from_master(num_processes=1, num_gpus_per_process=9).get_placement(
            TWO
        ),
        lambda: PackedPlacementStrategy.from_master(num_nodes=1).get_placement(Inventory.parse("1x0,1x8")),
    ],
)
def test_wrong_older_spellings(make: Any) -> None:
    with pytest.raises(roost.PlacementError):
        make()


def test_robots_see_every_accelerator_of_their_node() -> None:
    inventory = TWO.grouped(
        [{"label": "arms", "node_ranks": 1, "hardware": {"type": "Arm", "configs": [{"node_rank": 1}] * 2}}]
    )
    placements = FlexiblePlacementStrategy([[0], [1]], "arms").get_placement(inventory)
    assert held(placements) == [(1, [0]), (1, [1])]
    assert [place.local_accelerator_rank for place in placements] == [0, 0]
    assert all(len(place.visible_accelerators) == 8 for place in placements)


# -- components ------------------------------------------------------------------------------------------


def components(kind: type[ComponentPlacement] = ComponentPlacement, shape: str = "2x8", **rules: Any) -> Any:
    groups = [
        {"label": "arms", "node_ranks": 0, "hardware": {"type": "Arm", "configs": [{"node_rank": 0}] * 2}},
        {"label": "late", "node_ranks": 1},
    ]
    return kind({"cluster": {"component_placement": rules, "node_groups": groups}}, Inventory.parse(shape))


NODES = {"node_group": "node", "placement": "0-1"}


@pytest.mark.parametrize(
    ("rules", "mode"),
    [
        ({"a": "0-7", "b": "0-7"}, PlacementMode.COLLOCATED),
        ({"a": "0-7", "b": "0-7:0-3"}, PlacementMode.COLLOCATED),
        ({"a": "8-15", "b": {"node_group": "late", "placement": "all"}}, PlacementMode.COLLOCATED),
        ({"a": "0-7", "b": "8-15"}, PlacementMode.DISAGGREGATED),
        ({"a": "0-7", "b": {"node_group": "arms", "placement": "all"}}, PlacementMode.DISAGGREGATED),
        ({"a": "0-7", "b": {"node_group": "node", "placement": "all"}}, PlacementMode.DISAGGREGATED),
        ({"a": "0-7", "b": "4-11"}, PlacementMode.HYBRID),
        ({"a": "0-3", "b": "4-7"}, PlacementMode.DISAGGREGATED),
        ({"a": "0-3", "b": "2-5"}, PlacementMode.HYBRID),
        ({"a": NODES, "b": {**NODES, "placement": "0-1:0-7"}}, PlacementMode.COLLOCATED),
        ({"a": NODES, "b": {**NODES, "placement": "0"}}, PlacementMode.HYBRID),
        ({"a": "0-7", "b": "0-7", "c": "8"}, PlacementMode.HYBRID),
    ],
)
def test_modes(rules: dict[str, Any], mode: PlacementMode) -> None:
    assert components(**rules).placement_mode is mode
    assert components(HybridComponentPlacement, **rules).placement_mode is PlacementMode.HYBRID


def test_what_programs_ask_for() -> None:
    placed = components(a="0-3:0-7", b={"node_group": "node", "placement": "0-1:0-2"})
    assert placed.components == ["a", "b"]
    assert (placed.get_world_size("a"), placed.get_world_size("b")) == (8, 3)
    assert (placed.get_hardware_ranks("a"), placed.get_hardware_ranks("b")) == ([0, 1, 2, 3], [0, 1])
    assert isinstance(placed.get_strategy("a"), FlexiblePlacementStrategy)
    assert isinstance(placed.get_strategy("b"), NodePlacementStrategy)
    for ask in (placed.get_strategy, placed.get_world_size, placed.get_hardware_ranks):
        with pytest.raises(roost.PlacementError, match="unknown component"):
            ask("c")


def test_problems_of_all_components_come_together() -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        components(a="0-99", b="3-1", c="0-3:0-5", d={"node_group": "nope", "placement": "0"})
    assert sorted(caught.value.codes) == ["RI103", "RL102", "RP101", "RP103"]


def test_num_nodes_takes_the_first_nodes() -> None:
    job = {"cluster": {"num_nodes": 2, "component_placement": {"a": "all"}}}
    plan = roost.plan(job, Inventory.parse("4x2"))
    assert plan.components["a"].nodes == [0, 1]
    assert len(plan.inventory.nodes) == 2


# -- model-parallel --------------------------------------------------------------------------------------


def model_parallel(sizes: dict[str, Any] | None = None, shape: str = "2x8", **rules: Any) -> Any:
    job = {
        "cluster": {"component_placement": rules},
        "algorithm": {"recompute_logprobs": True},
        **(sizes or {}),
    }
    return ModelParallelComponentPlacement(job, Inventory.parse(shape))


def actor_tp(tp: int, pp: int = 1, cp: int = 1) -> dict[str, Any]:
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    return {"model": dict(zip(names, (tp, pp, cp), strict=True))}


def test_collocated_rollout_meets_the_actor_shards() -> None:
    placed = model_parallel(
        {"actor": actor_tp(4), "rollout": {"tensor_parallel_size": 2}}, actor="0-7", rollout="0-7"
    )
    assert placed.is_collocated
    assert held(placed.get_placements("rollout")) == [(0, [0, 2]), (0, [1, 3]), (0, [4, 6]), (0, [5, 7])]
    assert (placed.actor_tp_size, placed.actor_dp_size, placed.rollout_tp_size, placed.rollout_dp_size) == (
        4,
        2,
        2,
        4,
    )


def test_disaggregated_rollout_holds_tp_times_pp() -> None:
    placed = model_parallel(
        {"rollout": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}}, actor="0-7", rollout="8-15"
    )
    assert placed.is_disaggregated
    assert held(placed.get_placements("rollout")) == [(1, [0, 1, 2, 3]), (1, [4, 5, 6, 7])]
    assert (placed.rollout_pp_size, placed.rollout_dp_size, placed.rollout_world_size) == (2, 2, 8)
    assert placed.inference_world_size is None
    assert not placed.has_dedicated_inference


@pytest.mark.parametrize("name", ["inference", "actor_inference"])
def test_inference_takes_the_actor_sizes(name: str) -> None:
    placed = model_parallel({"actor": actor_tp(2, 2)}, actor="0-3", rollout="4-7", **{name: "8-15"})
    assert placed.has_dedicated_inference
    assert (placed.inference_tp_size, placed.inference_pp_size, placed.inference_dp_size) == (2, 2, 2)
    own = model_parallel(
        {"actor": actor_tp(2), "inference": actor_tp(4)}, actor="0-3", rollout="4-7", **{name: "8-15"}
    )
    assert (own.inference_tp_size, own.inference_dp_size) == (4, 2)


@pytest.mark.parametrize("word", ["false", "Off", "no", "0", "", None, False])
def test_inference_needs_recomputation_in_whatever_words(word: Any) -> None:
    off = {"algorithm": {"recompute_logprobs": word}}
    with pytest.raises(roost.ConfigurationError) as caught:
        model_parallel(off, actor="0-3", rollout="4-7", inference="8-15")
    assert caught.value.codes == ("RM105",)
    for on in ("true", "Yes", 1):
        model_parallel(
            {"algorithm": {"recompute_logprobs": on}}, actor="0-3", rollout="4-7", inference="8-15"
        )


def test_context_parallelism_counts() -> None:
    placed = model_parallel({"actor": actor_tp(2, 1, 2)}, actor="0-7", rollout="8-15")
    assert (placed.actor_cp_size, placed.actor_dp_size) == (2, 2)


def test_sizes_may_be_written_as_text_but_must_be_numbers() -> None:
    assert (
        model_parallel({"rollout": {"tensor_parallel_size": "2"}}, actor="0-7", rollout="0-7").rollout_tp_size
        == 2
    )
    for wrong in (0, -1, 1.5, True, "two", [2], 10**5000):
        with pytest.raises(roost.ConfigurationError) as caught:
            model_parallel({"rollout": {"tensor_parallel_size": wrong}}, actor="0-7", rollout="0-7")
        assert caught.value.codes == ("RM104",)


def test_a_missing_component_is_missed_on_a_larger_cluster_too() -> None:
    job = {"cluster": {"num_nodes": 1, "component_placement": {"actor": "0-7"}}}
    with pytest.raises(roost.PlacementError) as caught:
        ModelParallelComponentPlacement(job, Inventory.parse("3x8"))
    assert "RM101" in caught.value.codes


def test_unknown_attributes() -> None:
    placed = model_parallel(actor="0-7", rollout="0-7")
    with pytest.raises(AttributeError):
        placed.actor_xp_size  # noqa: B018
    with pytest.raises(AttributeError):
        placed.someone_tp_size  # noqa: B018
    with pytest.raises(AttributeError):
        placed.actor  # noqa: B018


# -- node groups of the job, and of the cluster ----------------------------------------------------------

GROUPED = {
    "cluster": {
        "component_placement": {
            "actor": {"node_group": "late", "placement": "0-3"},
            "agent": {"node_group": "bare", "placement": "0"},
        },
        "node_groups": [
            {"label": "late", "node_ranks": 1},
            {"label": "bare", "node_ranks": 1, "ignore_hardware": True},
        ],
    }
}


def test_a_strategy_knows_the_node_groups_of_its_job() -> None:
    bare = roost.Inventory.parse("2x4")
    other = bare.grouped([{"label": "late", "node_ranks": 0}])
    placed = roost.ComponentPlacement(GROUPED, bare)
    for name in placed.components:
        right = list(placed.get_placements(name))
        assert {place.cluster_node_rank for place in right} == {1}
        for inventory in (bare, other, placed.inventory, "3x4"):
            assert placed.get_strategy(name).get_placement(inventory) == right


def test_a_strategy_of_a_larger_cluster() -> None:
    placed = roost.ComponentPlacement(GROUPED, roost.Inventory.parse("2x4"))
    with pytest.raises(roost.ConfigurationError, match="node group 'late': node 1 does not exist"):
        placed.get_strategy("actor").get_placement("1x4")


def test_a_job_without_node_groups_uses_those_of_the_inventory() -> None:
    rules = {"actor": {"node_group": "late", "placement": "0-3"}}
    inventory = roost.Inventory.parse("2x4").grouped([{"label": "late", "node_ranks": 1}])
    plan = roost.plan({"cluster": {"component_placement": rules}}, inventory)
    assert plan.components["actor"].nodes == [1]
    # Those of the job replace the inventory's.
    groups = [{"label": "early", "node_ranks": 0}]
    with pytest.raises(roost.ConfigurationError, match="unknown node group 'late'"):
        roost.plan({"cluster": {"component_placement": rules, "node_groups": groups}}, inventory)


def test_the_older_spellings_are_packed_strategies() -> None:
    assert isinstance(roost.PackedPlacementStrategy.from_master(num_nodes=1), roost.PackedPlacementStrategy)
    assert isinstance(roost.ChunkedPlacementStrategy(2), roost.PackedPlacementStrategy)


ARMS = {"label": "arms", "node_ranks": 0, "hardware": {"type": "Arm", "configs": [{"node_rank": 0}] * 2}}


@pytest.mark.parametrize("groups", ["arms", "all,arms"])
def test_model_parallel_components_do_not_sit_on_robots(groups: str) -> None:
    rules = {"actor": "0-1", "rollout": {"node_group": groups, "placement": "0-1"}}
    cluster = {"component_placement": rules, "node_groups": [ARMS, {"label": "all", "node_ranks": 0}]}
    with pytest.raises(roost.ConfigurationError, match="rollout: its ranks count") as caught:
        roost.ModelParallelComponentPlacement({"cluster": cluster}, roost.Inventory.parse("1x2"))
    assert caught.value.codes == ("RP104",)


@pytest.mark.parametrize(
    ("inference", "what"),
    [
        ("0-3", r"inference \(0-3\) and actor \(0-3\) overlap \(node 0: 0-3\)"),
        ("5-6", r"inference \(5-6\) and rollout \(4-5\) overlap \(node 0: 5\)"),
    ],
)
def test_inference_has_accelerators_of_its_own(inference: str, what: str) -> None:
    rules = {"actor": "0-3", "rollout": "4-5", "inference": inference}
    job = {"cluster": {"component_placement": rules}, "algorithm": {"recompute_logprobs": True}}
    with pytest.raises(roost.PlacementError, match=what) as caught:
        roost.ModelParallelComponentPlacement(job, roost.Inventory.parse("1x8"))
    assert caught.value.codes == ("RM103",)


def test_what_follows_from_ranks_that_do_not_exist_is_not_said() -> None:
    rules = {"actor": "0-1,5-6,99", "rollout": "8-15"}  # not also: not consecutive
    with pytest.raises(roost.PlacementError) as caught:
        components(roost.ModelParallelComponentPlacement, **rules)
    assert caught.value.codes == ("RP101",)
