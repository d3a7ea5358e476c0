"""Moving the processes of lost nodes: only those, together, onto a node of the same shape."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import roost
from roost.planning.relocation import relocate

JOB: dict[str, Any] = {
    "cluster": {
        "component_placement": {
            "actor": "0-3",
            "rollout": "0-3",
            "reward": {"node_group": "b", "placement": "0-1"},
        },
        "node_groups": [
            {"label": "b", "node_ranks": "1", "env_configs": [{"node_ranks": 1, "env_vars": {"ZONE": "b"}}]}
        ],
    }
}


def test_only_the_lost_ranks_move_and_components_stay_together() -> None:
    plan = roost.plan(JOB, "4x2")
    moved = relocate(plan, {1}, {"actor": [2, 3], "rollout": [2, 3]})
    assert [str(move) for move in moved.moves] == [
        "actor rank 2: node 1 -> node 2",
        "actor rank 3: node 1 -> node 2",
        "rollout rank 2: node 1 -> node 2",
        "rollout rank 3: node 1 -> node 2",
    ]
    before, after = plan.components["actor"].members, moved.plan.components["actor"].members
    assert before[:2] == after[:2]
    assert [place.hardware for place in after] == [place.hardware for place in before]
    assert moved.plan.components["reward"] == plan.components["reward"]
    assert roost.Plan.from_dict(moved.plan.to_dict()).digest == moved.plan.digest != plan.digest


def test_the_environment_of_the_group_moves_along() -> None:
    moved = relocate(roost.plan(JOB, "4x2"), {1}, {"reward": [3]})
    inventory = moved.plan.inventory
    assert [place.cluster_node_rank for place in moved.plan.components["reward"].members] == [3, 3]
    assert inventory.environment("b", 3).env_vars == (("ZONE", "b"),)


def test_a_spare_node_that_is_lost_used_or_of_another_shape_takes_nothing() -> None:
    plan = roost.plan({"cluster": {"component_placement": {"actor": "0-1", "env": "4-5"}}}, "3x2")
    assert relocate(plan, {0, 1}, {"actor": [1]}).stranded == ("actor",)
    assert relocate(plan, {0}, {"actor": [2]}).stranded == ("actor",)  # env is there
    other = roost.plan({"cluster": {"component_placement": {"actor": "0-1"}}}, "1x2,1x3")
    assert relocate(other, {0}, {"actor": [1]}).stranded == ("actor",)
    assert relocate(plan, {0}, {}).moves == ()


def test_robots_stay() -> None:
    group = {
        "label": "robot",
        "node_ranks": "0-1",
        "hardware": {"type": "Franka", "configs": [{"node_rank": 0}, {"node_rank": 1}]},
    }
    job = {
        "cluster": {
            "component_placement": {"env": {"node_group": "robot", "placement": "0"}},
            "node_groups": [group],
        }
    }
    found = relocate(roost.plan(job, "2x0"), {0}, {"env": [1]})
    assert (found.moves, found.stranded) == ((), ("env",))


@given(st.sets(st.integers(0, 5), max_size=4), st.sets(st.integers(0, 5)), st.integers(1, 4))
def test_whatever_is_lost(lost: set[int], spare: set[int], used: int) -> None:
    plan = roost.plan({"cluster": {"component_placement": {"actor": f"0-{2 * used - 1}"}}}, "6x2")
    found = relocate(plan, lost, {"actor": spare})
    before, after = plan.components["actor"].members, found.plan.components["actor"].members
    gone = [place.rank for place in before if place.cluster_node_rank in lost]
    assert [move.rank for move in found.moves] == ([] if found.stranded else gone)  # the fewest there can be
    for old, new in zip(before, after, strict=True):
        assert old.hardware == new.hardware
        assert (old.cluster_node_rank == new.cluster_node_rank) == (
            old.rank not in {m.rank for m in found.moves}
        )
    if found.moves:
        assert {place.cluster_node_rank for place in after}.isdisjoint(lost)
    assert roost.Plan.from_dict(found.plan.to_dict()).digest == found.plan.digest
