"""The solver against recorded answers and against a plain search, and how its answers change."""

from __future__ import annotations

import copy
import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_search import NODE_GROUPS, PlainSearch, random_case

import roost
from roost.suggesting import fronts, relaxation, solver, thinning
from roost.suggesting.arrangement import cost_of, leaves
from roost.suggesting.checker import Checker
from roost.suggesting.problem import Problem, pose
from roost.suggesting.profile import read_profile
from roost.suggesting.tree_placement import placement_of

CASES = [
    json.loads(line)
    for line in gzip.decompress(
        (Path(__file__).parents[1] / "data/suggest.jsonl.gz").read_bytes()
    ).splitlines()
]
MANY = int(os.environ.get("ROOST_EXAMPLES", "25"))  # random problems of each kind


def inventory_of(case: dict[str, Any]) -> roost.Inventory:
    inventory = roost.Inventory.from_dict(case["inventory"])
    return inventory.grouped(case["node_groups"]) if case.get("node_groups") else inventory


def check_plan(tree: Any, problem: Problem, inventory: roost.Inventory, node_groups: Any) -> None:
    """The plan of the placement gives each leaf its accelerators, and none to two that run beside each other."""
    cluster = {"component_placement": placement_of(tree, problem)}
    planned = roost.plan(
        {"cluster": {**cluster, **({"node_groups": node_groups} if node_groups else {})}}, inventory
    )
    held = {
        name: {
            (place.cluster_node_rank, number)
            for place in component.members
            if place.holds_accelerators
            for number in place.hardware
        }
        for name, component in planned.components.items()
    }
    for leaf in leaves(tree):
        assert len(held[leaf.component]) == leaf.accelerators

    def apart(data: Any) -> None:
        for kind, sides in data.items() if "component" not in data else ():
            first, second = ([one["component"] for one in _leaf_dicts(side)] for side in sides)
            if kind == "beside":
                assert all(held[a].isdisjoint(held[b]) for a in first for b in second)
            for side in sides:
                apart(side)

    apart(tree.to_dict())


def _leaf_dicts(data: Any) -> list[Any]:
    if "component" in data:
        return [data]
    return [leaf for side in next(iter(data.values())) for leaf in _leaf_dicts(side)]


def test_all_cases_are_there() -> None:
    assert len(CASES) == 320
    assert {case.get("error") for case in CASES} == {
        None,
        "bad-profile",
        "infeasible-memory",
        "infeasible-accelerators",
    }


@pytest.mark.parametrize("case", [case for case in CASES if "error" not in case], ids=lambda case: case["id"])
def test_golden(case: dict[str, Any]) -> None:
    inventory = inventory_of(case)
    problem = pose(read_profile(case["profile"]), inventory, case.get("groups"))
    found = solver.solve(problem)
    assert found.tree is not None
    assert found.seconds == pytest.approx(case["best"], rel=1e-9)
    assert found.bound == pytest.approx(case["best"], rel=1e-9)
    checker = Checker(problem)
    assert list(checker.problems(found.tree.to_dict())) == []
    assert checker.fits(found.tree.to_dict())
    assert checker.value(found.tree.to_dict()) == pytest.approx(case["best"], rel=1e-9)
    assert sum(cost_of(found.tree, problem).accelerators.values()) == case["accelerators"]
    check_plan(found.tree, problem, inventory, case.get("node_groups"))


@pytest.mark.parametrize("case", [case for case in CASES if "error" in case], ids=lambda case: case["id"])
def test_golden_errors(case: dict[str, Any]) -> None:
    with pytest.raises(roost.ConfigurationError) as caught:
        roost.suggest(case["profile"], inventory_of(case), groups=case.get("groups"))
    assert all(finding.what and finding.remedy for finding in caught.value.findings)
    codes = {"infeasible-memory": "RP114", "infeasible-accelerators": "RP113"}
    if case["error"] in codes:
        assert isinstance(caught.value, roost.PlacementError)
        assert set(caught.value.codes) == {codes[case["error"]]}
    else:
        assert not isinstance(caught.value, roost.PlacementError)


def check_relaxation(problem: Problem, best: float) -> None:
    """However coarsely it counts accelerators, and wherever it stops, the relaxation is a bound."""
    tables = Checker(problem).tables
    for most_work in (0, 300):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(relaxation, "_MOST_WORK", most_work)
            assert 0 < relaxation.relaxed(problem, tables, 2 * best).bound <= best * (1 + 1e-9)
    for steps in (2, 5, 24):
        for limit in (best, 2 * best):
            work = [1_000_000]
            cases = [
                relaxation.Relaxation(problem, tables, steps, limit, work, together)
                for together in relaxation.renewals(problem)
            ]
            assert min(limit, *(case.least() for case in cases)) <= best * (1 + 1e-9)


def posed(seed: int, most: int = 3) -> tuple[Problem, dict[str, Any]] | None:
    """A random problem; None if its widths do not fit together."""
    profile, inventory, groups = random_case(seed, most)
    try:
        return pose(read_profile(profile), inventory, groups), profile
    except roost.ConfigurationError:
        return None


def test_states_that_are_all_the_same_share_a_box() -> None:
    assert thinning._boxes(np.ones((4, 5)), 2).tolist() == [0] * 5


@pytest.mark.parametrize("caps", ["wide", "narrow"])
def test_agrees_with_a_plain_search(caps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if caps == "narrow":  # then even small fronts are thinned, and states are ruled out between passes
        monkeypatch.setattr(solver, "_CAPS", (2, 3, 5, 9, 16, 30, 60, 120, 1_000, 100_000))
        monkeypatch.setattr(solver, "_FIRST_CAPS", (2, 3))
        monkeypatch.setattr(fronts, "_FEW", 3)
    compared, start = 0, 10_000_000 if caps == "narrow" else 0
    for seed in range(MANY):
        case = posed(seed + start)
        if case is None:
            continue
        problem, profile = case
        groups = [(group.label, group.total, group.memory_gib) for group in problem.groups]
        wanted = PlainSearch(profile, groups).best()
        found = solver.solve(problem)
        if wanted is None:
            assert found.tree is None, seed
            continue
        assert found.tree is not None, seed
        used = sum(cost_of(found.tree, problem).accelerators.values())
        assert (found.seconds, used) == (pytest.approx(wanted[0], rel=1e-9), wanted[1]), seed
        assert found.bound == pytest.approx(wanted[0], rel=1e-9), seed
        inventory, node_groups = random_case(seed + start)[1], NODE_GROUPS if len(groups) > 1 else None
        check_plan(found.tree, problem, inventory, node_groups)
        check_relaxation(problem, wanted[0])
        compared += 1
    assert compared > MANY // 3


def best(profile: dict[str, Any], inventory: roost.Inventory, groups: Any) -> float:
    found = solver.solve(pose(read_profile(profile), inventory, groups))
    return found.seconds if found.tree is not None else float("inf")


@pytest.mark.parametrize("seed", range(MANY // 4))
def test_better_inputs_never_make_it_worse(seed: int) -> None:
    profile, inventory, groups = random_case(seed, 4)
    try:
        before = best(profile, inventory, groups)
    except roost.ConfigurationError:
        return
    rng = random.Random(seed)
    faster, cheaper = copy.deepcopy(profile), copy.deepcopy(profile)
    for part in faster["components"].values():
        part["seconds"] = _scaled(part["seconds"], rng.uniform(0.6, 1))
    for part in cheaper["components"].values():
        part["switch"] = part.get("switch", 0) * rng.random()
    assert best(faster, inventory, groups) <= before * (1 + 1e-9)
    assert best(cheaper, inventory, groups) <= before * (1 + 1e-9)
    if groups is None:
        larger = roost.Inventory(nodes=tuple(inventory.nodes) * 2)
        assert best(profile, larger, groups) <= before * (1 + 1e-9)


def _scaled(seconds: Any, factor: float) -> Any:
    return (
        {key: _scaled(value, factor) for key, value in seconds.items()}
        if isinstance(seconds, dict)
        else seconds * factor
    )


@pytest.mark.parametrize("seed", range(MANY // 4))
def test_names_and_order_do_not_matter(seed: int) -> None:
    profile, inventory, groups = random_case(seed, 4)
    try:
        before = best(profile, inventory, groups)
    except roost.ConfigurationError:
        return
    names = list(profile["components"])
    new = {name: f"c{at}" for at, name in enumerate(random.Random(seed).sample(names, len(names)))}
    other = {
        **profile,
        "flow": {new[name]: [new[one] for one in profile["flow"][name]] for name in reversed(names)},
        "components": {new[name]: profile["components"][name] for name in reversed(names)},
    }
    if "weights" in profile:
        ends = {key: new[profile["weights"][key]] for key in ("from", "to")}
        other["weights"] = {**profile["weights"], **ends}
    assert best(other, inventory, groups) == pytest.approx(before, rel=1e-9)


def test_a_thinned_answer_says_how_far_it_may_be_off(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = {
        "batch": 64,
        "flow": {"a": [], "b": ["a"], "c": ["b"]},
        "components": {
            name: {"seconds": {8: work, 512: work / 40}, "streams": True}
            for name, work in (("a", 900.0), ("b", 500.0), ("c", 700.0))
        },
    }
    problem = pose(read_profile(profile), roost.Inventory.parse("64x8"))
    exact = solver.solve(problem)
    monkeypatch.setattr(solver, "_CAPS", (20,))
    rough = solver.solve(problem)
    assert exact.exact
    assert not rough.exact
    assert rough.bound <= exact.seconds * (1 + 1e-9) <= rough.seconds * (1 + 2e-9)
    assert rough.bound > 0
