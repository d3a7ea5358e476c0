from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roost
from roost.inventory.resources import ACCELERATOR
from roost.views.captions import in_short
from roost.views.components import each_holds, neighbours, places
from roost.views.map import node_map
from roost.views.style import KEEP, Style, hues, letters

NAMES = st.lists(st.text("abzAZ019._-", min_size=1, max_size=6), unique=True, max_size=120)


@given(NAMES)
def test_every_component_has_its_own_letter(names: list[str]) -> None:
    given_letters = letters(names)
    assert list(given_letters) == names
    assert len(set(given_letters.values())) == len(names)
    assert all(letter.isalpha() and letter.isascii() for letter in given_letters.values())


def test_letters_come_from_names_where_they_can() -> None:
    names = ["actor", "rollout", "reward", "env", "agent", "a"]
    assert list(letters(names).values()) == ["A", "R", "W", "E", "G", "B"]


def test_letters_and_colours_do_not_depend_on_the_order_or_on_usual_names_that_are_missing() -> None:
    names = ["rollout", "critic", "reward", "reference", "simulator", "sampler"]
    whole, colours = letters(names), hues(names)
    assert letters(reversed(names)) == whole
    assert hues(reversed(names)) == colours
    for gone in ("rollout", "critic", "reward", "reference"):
        left = [name for name in names if name != gone]
        assert letters(left) == {name: whole[name] for name in left}
        assert hues(left) == {name: colours[name] for name in left}
    assert len(set(colours.values())) == len(names)


def plan_of(placement: dict[str, Any], shape: str, **more: Any) -> roost.Plan:
    return roost.plan({"cluster": {"component_placement": placement, **more}}, roost.Inventory.parse(shape))


def test_counts_are_those_of_the_plan() -> None:
    plan = plan_of({"actor,critic": "0-5", "env": "8-9:0-7", "rollout": "10-15:0-2"}, "3x8")
    shared = sum(1 for device in plan.shared if device.kind == ACCELERATOR)
    used, idle = len(plan.occupancy), len(plan.idle)
    assert in_short(plan, {}) == f"3 nodes, 24 accelerators: {used} used, {idle} idle, {shared} shared"


def test_neighbours() -> None:
    plan = plan_of({"actor": "0-7", "rollout": "4-11", "reward": "8-11", "critic": "15"}, "2x8")
    assert neighbours(plan) == {
        "actor": ["rollout"],
        "rollout": ["actor", "reward"],
        "reward": ["rollout"],
        "critic": [],
    }


@pytest.mark.parametrize(
    ("rule", "shape", "text"),
    [
        ("0-7", "1x8", "1 accelerator"),
        ("0-7:0-3", "1x8", "2 accelerators"),
        ("0-3:0-15", "1x8", "4 per accelerator"),
        ("0-3,4-7:4-5", "1x8", "1-2 accelerators"),
        ("0-3,4-7:4-11", "1x8", "1-2 per accelerator"),
        ("0-3:0-1,4-7:2-9", "1x8", "1-2 accelerators, some shared"),
        ("all", "3x0", "1 node"),
        ("all:0-8", "3x0", "3 per node"),
        ("all:0-9", "3x0", "3-4 per node"),
    ],
)
def test_what_each_process_holds(rule: str, shape: str, text: str) -> None:
    plan = plan_of({"actor": rule}, shape)
    assert each_holds(plan.components["actor"]) == text


def test_robots_are_named() -> None:
    group = {
        "label": "robot",
        "node_ranks": 0,
        "hardware": {"type": "Franka", "configs": [{"node_rank": 0}, {"node_rank": 0}]},
    }
    plan = plan_of({"env": {"node_group": "robot", "placement": "0:0-1"}}, "1x8", node_groups=[group])
    assert each_holds(plan.components["env"]) == "2 per Franka"
    table, _ = node_map(plan, Style.of(plan.components), 100, {})
    beside = next(str(cell) for cell in table.columns[-1].cells)
    assert beside.replace(KEEP, " ") == "Franka 0: E0-1, Franka 1: ·"


def test_places_follow_ranks_whatever_the_order_of_nodes() -> None:
    groups = [{"label": "late", "node_ranks": 2}, {"label": "early", "node_ranks": "0-1"}]
    rule = {"node_group": "late,early", "placement": "all"}
    plan = plan_of({"actor": rule}, "3x8", node_groups=groups)
    assert list(places(plan.components["actor"])) == ["0-7 on node 2", "8-23 on nodes 0-1, 8 each"]


def test_many_places_are_cut_short() -> None:
    from roost.views.terminal import render_plan

    plan = plan_of({"actor": ",".join(str(16 * node) for node in range(9))}, "18x8")
    assert "... 6 more" in render_plan(plan)
    assert "... 6 more" not in render_plan(plan, show_all=True)
