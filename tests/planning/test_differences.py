"""The differences between plans, and between a plan and a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roost
from roost.planning.differences import cluster_differences, plan_differences
from roost.views.difference_text import render_differences


def job(placement: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"cluster": {"component_placement": placement, **more}}


def plan_of(source: Any, shape: str = "2x8") -> roost.Plan:
    return roost.plan(source, roost.Inventory.parse(shape))


def told(before: roost.Plan, after: roost.Plan, show_all: bool = False) -> str:
    return render_differences(plan_differences(before, after), "a", "b", show_all)


def grouped(**variables: Any) -> roost.Plan:
    rule = {"node_group": "g", "placement": "all"}
    settings = {"node_ranks": 0, "env_vars": variables}
    group = {"label": "g", "node_ranks": "0-1", "env_configs": [settings]}
    return plan_of(job({"actor": rule}, node_groups=[group]))


def test_moved_added_gone_and_other_devices() -> None:
    before = plan_of(job({"actor": "0-3", "rollout": "4-7:0-1,8-11:2-3", "reward": "12", "env": "13"}))
    after = plan_of(job({"actor": "8-11", "rollout": "4-7:0-3,8-11:4-5", "critic": "14-15", "env": "13"}))
    assert told(before, after) == (
        "a -> b\n"
        "actor changed: 4 moved\n"
        "  0-3 moved: node 0 accelerators 0-3 -> node 1 accelerators 0-3\n"
        "rollout changed: 2 moved, 2 added, 2 on other devices\n"
        "  0-1 changed: node 0 accelerators 4-7 -> node 0 accelerators 4-5\n"
        "  2-3 moved: node 1 accelerators 0-3 -> node 0 accelerators 6-7\n"
        "  4-5 added: node 1 accelerators 0-3\n"
        "reward gone: 1 process\n"
        "  0 gone: node 1 accelerator 4\n"
        "critic added: 2 processes\n"
        "  0-1 added: node 1 accelerators 6-7\n"
    )


def test_the_wording_of_a_job_is_no_difference() -> None:
    one, other = plan_of(job({"actor": "0-7"})), plan_of(job({"actor": "0-3,4-7:4-7"}))
    assert one.components["actor"].rule != other.components["actor"].rule
    assert told(one, other) == "a and b: no differences\n"


def test_engines_shares_and_policies() -> None:
    def laid(width: int, **more: Any) -> roost.Plan:
        return plan_of(roost.Layout(rollout_num_gpus=16, rollout_num_gpus_per_engine=width, **more), "3x8")

    changes = plan_differences(laid(4), laid(16)).components
    assert [(one.component, [s.setting for s in one.settings]) for one in changes] == [
        ("rollout", ["engines"])
    ]
    assert "engines: 1 process each, regular, of server default -> 2" in told(laid(4), laid(16))
    before = plan_of(job({"actor,critic": "0-3"}))
    after = plan_of(
        {**job({"actor,critic": "0-3"}, shares={"actor": 0.7}), "supervise": {"critic": {"restarts": 1}}}
    )
    assert "actor changed\n  share: none -> 0.7\ncritic changed\n  supervise: none -> policy fail" in told(
        before, after
    )


def test_names_of_variables_are_told_and_values_are_not() -> None:
    text = told(grouped(A="one", B="x", HF_TOKEN="canary-1"), grouped(A="two", C="y", HF_TOKEN="canary-2"))
    assert text == (
        "a -> b\nnode group g changed\n"
        "  A: on node 0 -> on node 0, another value\n"
        "  B: on node 0 -> none\n"
        "  C: none -> on node 0\n"
    )


def test_a_saved_plan_differs_in_nothing_from_its_job() -> None:
    plan = grouped(A="one", HF_TOKEN="canary-1")
    saved = roost.Plan.from_dict(plan.to_dict())
    assert not plan_differences(plan, saved)
    assert not plan_differences(saved, plan)


def test_nodes_that_are_other_ones() -> None:
    def on(*nodes: dict[str, Any]) -> roost.Plan:
        inventory = roost.Inventory.from_dict({"nodes": list(nodes)})
        return roost.plan(job({"actor": "0"}), inventory)

    before = on({"ip": "10.0.0.1", "accelerators": 8}, {"ip": "10.0.0.2", "accelerators": 8})
    after = on({"ip": "10.0.0.9", "accelerators": 8}, {"ip": "10.0.0.2", "accelerators": 4}, {"cpus": 4})
    assert told(before, after) == (
        "a -> b\n"
        "node 0 changed: 10.0.0.1, 8 x nvidia_gpu -> 10.0.0.9, 8 x nvidia_gpu\n"
        "node 1 changed: 10.0.0.2, 8 x nvidia_gpu -> 10.0.0.2, 4 x nvidia_gpu\n"
        "node 2 added: no accelerators\n"
    )
    # A cluster in one word has no addresses, so they cannot differ.
    assert not plan_differences(before, roost.plan(job({"actor": "0"}), roost.Inventory.parse("2x8")))


def test_long_lists_say_how_to_see_all() -> None:
    ranks = ",".join(str(8 * node) for node in range(20))
    before, after = plan_of(job({"actor": ranks}), "20x8"), plan_of(job({"actor": "all"}), "20x8")
    assert "more lines; --all shows them" in told(before, after)
    assert "more lines" not in told(before, after, show_all=True)


def test_a_cluster_without_room_for_a_plan() -> None:
    plan = plan_of(job({"actor": "0-15", "agent": {"node_group": "node", "placement": "all"}}), "2x8")
    assert not cluster_differences(plan, roost.Inventory.parse("3x8"))
    found = cluster_differences(plan, roost.Inventory.parse("1x6"))
    text = render_differences(found, "plan.json", "the running cluster")
    assert text == (
        "plan.json -> the running cluster\n"
        "node 0 changed: 8 x nvidia_gpu -> 6 x nvidia_gpu\n"
        "node 1 gone: 8 x nvidia_gpu\n"
        "actor changed: 10 gone\n"
        "  6-7 gone: node 0 accelerators 6-7\n"
        "  8-15 gone: node 1 accelerators 0-7\n"
        "agent changed: 1 gone\n"
        "  1 gone: node 1\n"
    )


@given(st.integers(1, 16), st.integers(1, 8))
def test_differences_lead_from_one_plan_to_the_other(first: int, second: int) -> None:
    before, after = plan_of(job({"actor": f"0-{first - 1}"})), plan_of(job({"actor": f"0-{second - 1}:0"}))
    found = plan_differences(before, after)
    seats = {place.rank: place for place in before.components["actor"].members}
    changes = [change for part in found.components for change in part.processes]
    for change in changes:
        if change.after is None:
            del seats[change.rank]
        else:
            seats[change.rank] = after.components["actor"].members[change.rank]
    held = [(place.cluster_node_rank, place.hardware) for place in seats.values()]
    assert held == [(p.cluster_node_rank, p.hardware) for p in after.components["actor"].members]


@pytest.mark.parametrize("name", ["nodes", "node_groups", "components"])
def test_any_part_makes_a_difference(name: str) -> None:
    found = plan_differences(grouped(A="1"), plan_of(job({"critic": "0"}), "3x8"))
    empty = {one: () for one in ("nodes", "node_groups", "components") if one != name}
    assert replace(found, **empty)
    assert not replace(found, **empty, **{name: ()})
