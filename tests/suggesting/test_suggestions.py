"""Profiles, suggestions, their checker and the simulator."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import roost
from roost.suggesting import suggestion as suggestion_module
from roost.suggesting.arrangement import Beside, Leaf, Turns, read_arrangement
from roost.suggesting.checker import Checker
from roost.suggesting.problem import pose
from roost.suggesting.profile import read_profile
from roost.suggesting.relaxation import relaxed
from roost.suggesting.solver import solve
from roost.suggesting.suggestion import Suggestion
from roost.suggesting.tree_placement import placement_of

PROFILE: dict[str, Any] = {
    "batch": 512,
    "flow": {
        "rollout": [],
        "reward": ["rollout"],
        "inference": ["rollout"],
        "actor": ["inference", "reward"],
    },
    "weights": {"from": "actor", "to": "rollout", "together": 1.5, "apart": 6.0},
    "components": {
        "rollout": {
            "accelerators_per_process": 2,
            "seconds": {4: 210.0, 8: 120.0, 16: 64.0, 32: 40.0},
            "streams": True,
            "switch": 4.0,
            "memory_gib": 50,
            "resident_gib": 8,
        },
        "inference": {
            "seconds": {4: 40.0, 8: 22.0, 16: 13.0},
            "streams": True,
            "switch": 2.0,
            "memory_gib": 30,
        },
        "actor": {
            "seconds": {8: 110.0, 16: 60.0, 32: 34.0},
            "switch": 3.0,
            "memory_gib": 60,
            "resident_gib": 20,
        },
        "reward": {"seconds": 3.0, "streams": True},
    },
}


@pytest.fixture(scope="module")
def suggestion() -> Suggestion:
    return roost.suggest(PROFILE, roost.Inventory.uniform(4, 8, memory_gib=80))


def text_of(error: roost.RoostError) -> str:
    return str(error)


# -- profiles --------------------------------------------------------------------------------------------


def test_all_problems_of_a_profile_have_their_place(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(
        "profile:\n"
        "  batch: 0\n"
        "  flow: {rollout: [], actor: [rolout]}\n"
        "  components:\n"
        "    rollout: {seconds: {3: 10.0}, accelerators_per_process: 2}\n"
        "    actor: {seconds: {8: -1.0}, swich: 2}\n"
        "    critic: {seconds: 1.0}\n"
    )
    with pytest.raises(roost.ConfigurationError) as caught:
        read_profile(path)
    places = {(finding.where.line if finding.where else 0, finding.code) for finding in caught.value.findings}
    assert places == {(2, "RC104"), (3, "RF101"), (5, "RF102"), (6, "RC104"), (6, "RC101")}
    whole = text_of(caught.value)
    assert "did you mean 'rollout'?" in whole
    assert "critic is missing from flow" in whole
    assert "^^^" in whole


@pytest.mark.parametrize(
    ("seconds", "help"),
    [
        ({0: 1.0}, "write a number from 1 to 9999999"),
        ({99999999999: 1.0}, "write a number from 1 to 9999999"),
        ({4: 1e-320}, "it must be at least 0.000000001"),
    ],
)
def test_sizes_and_seconds_out_of_range(seconds: dict[int, float], help: str) -> None:
    profile = {"batch": 1, "flow": {"a": []}, "components": {"a": {"seconds": seconds}}}
    with pytest.raises(roost.ConfigurationError, match=help):
        read_profile(profile)


def test_interpolation_is_linear_in_throughput_and_never_slower() -> None:
    profile = {
        "batch": 1,
        "flow": {"a": []},
        "components": {"a": {"seconds": {2: 30.0, 4: 10.0, 6: 12.0, 8: 9.0}}},
    }
    curve = pose(read_profile(profile), roost.Inventory.parse("1x8")).curves["a"]["cluster"]
    assert [curve.at(n) for n in (1, 2, 3, 4, 5, 6, 8, 9)] == [
        None,
        30.0,
        pytest.approx(15.0),
        10.0,
        10.0,
        10.0,
        9.0,
        None,
    ]


def test_a_profile_with_and_without_groups_needs_the_groups_named() -> None:
    inventory = roost.Inventory.parse("2x8").grouped([{"label": "a", "node_ranks": 0}])
    profile = {
        "batch": 1,
        "flow": {"x": [], "y": []},
        "components": {"x": {"seconds": {"a": {8: 1.0}}}, "y": {"seconds": {8: 1.0}}},
    }
    with pytest.raises(roost.ConfigurationError, match=r"overlap(.|\n)*write --groups a;"):
        roost.suggest(profile, inventory)
    assert roost.suggest(profile, inventory, groups="a").seconds == 2.0


# -- suggestions -----------------------------------------------------------------------------------------


def test_a_suggestion_and_its_reasons(suggestion: Suggestion) -> None:
    assert suggestion.gap == 0
    assert suggestion.bound == suggestion.seconds
    assert suggestion.measured["rollout"] in ("measured", "interpolated")
    named = {one.name: one.seconds for one in suggestion.alternatives}
    assert set(named) == {"all in turns", "all beside"}
    assert all(seconds is None or seconds >= suggestion.seconds for seconds in named.values())
    assert json.loads(json.dumps(suggestion.to_dict()))["tree"] == suggestion.tree
    assert read_arrangement(suggestion.to_dict()) == suggestion.arrangement


def test_the_present_placement_is_compared() -> None:
    inventory = roost.Inventory.uniform(4, 8)
    placement = {
        "actor": "0-7",
        "inference": "8-15",
        "rollout": "16-31:0-7",
        "reward": {"node_group": "node", "placement": 0},
    }
    present = roost.plan({"cluster": {"component_placement": placement}}, inventory)
    (other,) = [
        one
        for one in roost.suggest(PROFILE, inventory, present=present).alternatives
        if "present" in one.name
    ]
    # Rollout, inference and reward stream; the actor waits for all of them.
    assert other.seconds == pytest.approx(64.0 + 22.0 / 512 + 3.0 / 512 + 110.0 + 6.0, rel=1e-3)


def test_memory_that_binds_is_said() -> None:
    tight = roost.suggest(PROFILE, roost.Inventory.uniform(4, 8, memory_gib=64))
    free = roost.suggest(PROFILE, roost.Inventory.uniform(4, 8))
    assert tight.seconds > free.seconds
    assert any(limit.startswith("memory: ") and "of 64 GiB" in limit for limit in tight.binding)


def test_a_measured_range_that_binds_is_said_and_worth_measuring() -> None:
    profile = {"batch": 4, "flow": {"a": []}, "components": {"a": {"seconds": {2: 30.0, 4: 16.0}}}}
    found = roost.suggest(profile, "1x8")
    assert found.binding == ("a: its largest measured size, 4",)
    (larger,) = found.worth_measuring()
    assert (larger.component, larger.accelerators) == ("a", 8)
    assert larger.gain == pytest.approx(8.0)


def test_sizes_between_and_below_the_measured_ones_may_be_worth_measuring(suggestion: Suggestion) -> None:
    assert suggestion.measured["rollout"] == "interpolated"
    (between,) = suggestion.worth_measuring()
    assert (between.component, between.accelerators) == ("rollout", 28)
    profile = {
        "batch": 1,
        "flow": {"a": [], "b": []},
        "mode": "async",
        "components": {"a": {"seconds": {8: 8.0}}, "b": {"seconds": {4: 20.0, 8: 16.0}}},
    }
    below = roost.suggest(profile, "1x8").worth_measuring()
    assert [(one.component, one.accelerators) for one in below] == [("a", 4)]


@pytest.mark.parametrize(
    ("shape", "memory", "code", "words"),
    [
        ("1x4", None, "RP113", "smallest measured size is 8, 4 more than there are"),
        ("1x8", 40, "RP114", "together need 80 of 40 GiB per accelerator of 'cluster', 40 GiB too much"),
        ("1x8", 79, "RP114", "together need 80 of 79 GiB per accelerator of 'cluster', 1 GiB too much"),
    ],
)
def test_what_does_not_fit_says_by_how_much(shape: str, memory: float | None, code: str, words: str) -> None:
    nodes, each = map(int, shape.split("x"))
    profile = json.loads(json.dumps(PROFILE))
    for part in ("rollout", "inference"):  # both must take turns with the actor
        profile["components"][part].update(seconds={8: 20.0}, resident_gib=10)
    with pytest.raises(roost.PlacementError) as caught:
        roost.suggest(profile, roost.Inventory.uniform(nodes, each, memory_gib=memory))
    assert set(caught.value.codes) == {code}
    assert words in text_of(caught.value)


def test_too_few_accelerators_for_the_widest_says_how_many_would_do() -> None:
    """On 10 accelerators turns need 16: sizes are rounded up to the larger width."""
    profile = {
        "batch": 1,
        "flow": {"a": [], "b": []},
        "components": {
            "a": {"seconds": {8: 5.0}, "accelerators_per_process": 8},
            "b": {"seconds": {9: 5.0}},
        },
    }
    with pytest.raises(roost.PlacementError, match="at least 16 accelerators would do, 6 more"):
        roost.suggest(profile, roost.Inventory.uniform(5, 2))


def two_groups(fast: int, slow: int, memory: float | None = None) -> roost.Inventory:
    nodes = [{"accelerators": {"count": 4, **({"memory_gib": memory} if memory else {})}}] * (fast + slow)
    return roost.Inventory.from_dict({"nodes": nodes}).grouped(
        [
            {"label": "fast", "node_ranks": f"0-{fast - 1}"},
            {"label": "slow", "node_ranks": f"{fast}-{fast + slow - 1}"},
        ]
    )


def profile_of(flow: dict[str, Any], **components: Any) -> dict[str, Any]:
    return {"batch": 1, "flow": flow, "components": components}


@pytest.mark.parametrize(
    ("components", "flow", "nodes", "memory", "words"),
    [
        (  # its range, on both groups
            {"a": {"seconds": {"fast": {12: 5.0}, "slow": {32: 9.0}}}},
            {"a": []},
            (2, 4),
            None,
            ["its smallest measured size on 'fast' is 12, 4 more than 'fast' has", "12 accelerators of 'fast' and 16"],
        ),
        (  # each fits; together they do not: 9 of slow are rounded up to 16 where b takes turns with c
            {
                "b": {"seconds": {"slow": {8: 5.0}}, "accelerators_per_process": 8},
                "c": {"seconds": {"slow": {9: 5.0}}},
                "d": {"seconds": {"fast": {4: 5.0}}},
            },
            {"b": [], "c": [], "d": []},
            (1, 3),
            None,
            ["fits 4 accelerators of 'fast' and 12 of 'slow'", "4 accelerators of 'fast' and 16 of 'slow' would do, 4 more"],
        ),
        (  # beside each other 9 of fast would do, but x must come before y and y before z: all take turns
            {
                "x": {"seconds": {"fast": {9: 5.0}}},
                "y": {"seconds": {"slow": {8: 5.0}}, "accelerators_per_process": 8},
                "z": {"seconds": {"fast": {9: 5.0}}},
            },
            {"x": [], "y": ["x"], "z": ["y"]},
            (3, 2),
            None,
            ["fits 12 accelerators of 'fast' and 8 of 'slow'", "16 accelerators of 'fast' and 8 of 'slow' would do, 4 more"],
        ),
        (  # memory, of the group that is less short
            {
                "a": {"seconds": {"fast": {4: 5.0}, "slow": {4: 5.0}}, "memory_gib": 50, "resident_gib": 40},
                "b": {"seconds": {"fast": {4: 5.0}}, "memory_gib": 60, "resident_gib": 5},
                "c": {"seconds": {"slow": {4: 5.0}}, "memory_gib": 45, "resident_gib": 30},
            },
            {"a": [], "b": [], "c": []},
            (1, 1),
            70,
            ["c and a together need 85 of 70 GiB per accelerator of 'slow', 15 GiB too much"],
        ),
    ],
    ids=["range", "rounding", "order", "memory"],
)  # fmt: skip
def test_what_would_do_on_two_groups(
    components: Any, flow: Any, nodes: tuple[int, int], memory: float | None, words: list[str]
) -> None:
    profile = profile_of(flow, **components)
    with pytest.raises(roost.PlacementError) as caught:
        roost.suggest(profile, two_groups(*nodes, memory), groups="fast,slow")
    for part in words:
        assert part in text_of(caught.value)


def test_a_search_that_ends_early_is_not_taken_for_a_problem_without_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All in turns, which is tried first, does not fit into the memory; beside each other they do."""
    parts = {name: {"seconds": {4: 5.0, 8: 3.0}, "memory_gib": 50, "resident_gib": 30} for name in ("a", "b")}
    profile = profile_of({"a": [], "b": ["a"]}, **parts)
    inventory = roost.Inventory.uniform(1, 8, memory_gib=60)
    monkeypatch.setattr(suggestion_module, "solve", partial(solve, most_pairs=0))
    early = roost.suggest(profile, inventory)
    assert (early.seconds, early.accelerators_used) == (10.0, 8)
    assert 0 < early.gap < 1
    early.verify()


# -- the checker -----------------------------------------------------------------------------------------


def test_a_suggestion_verifies(suggestion: Suggestion) -> None:
    done = suggestion.verify()
    assert done.seconds == suggestion.seconds
    assert (done.method, done.gap, done.complete) == ("relaxation", 0.0, True)


def worse(suggestion: Suggestion) -> dict[str, Any]:
    """The best arrangement of all in turns, presented as the best of all."""
    (other,) = [one for one in suggestion.alternatives if one.name == "all in turns"]
    return {
        "arrangement": other.tree,
        "seconds": other.seconds,
        "bound": other.seconds,
        "accelerators_used": 32,
        "placement": placement_of(other.tree, suggestion.problem),
    }


def moved(suggestion: Suggestion, **rules: Any) -> dict[str, Any]:
    return {"placement": {**suggestion.placement, **rules}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: {"seconds": s.seconds * 0.99, "bound": s.bound * 0.99}, "the arrangement takes"),
        (lambda s: {"bound": s.bound * 1.01}, "do not go together"),
        (lambda s: {"gap": 0.01}, "do not go together"),
        (lambda s: {"accelerators_used": 8}, "uses 32 accelerators, not 8"),
        (
            lambda s: {"arrangement": Leaf(component="actor", accelerators=8, group="cluster")},
            "not each component",
        ),
        (worse, "there is a faster arrangement"),
        (lambda s: moved(s, inference="24-27"), "rollout and inference run beside each other"),
        (lambda s: moved(s, actor="0-15"), "is not 32 accelerators"),
        (lambda s: moved(s, rollout="0-27"), "2 for each process"),
        (lambda s: moved(s, rollout="1-28:0-13"), "leaves its node"),
        (lambda s: moved(s, inference="29-32"), "is not 4 accelerators"),
        (lambda s: moved(s, reward="0"), "is placed on 'cluster', not on 'node'"),
        (lambda s: {"placement": {"actor": "0-31"}}, "not each component once"),
    ],
    ids=[
        "seconds",
        "bound",
        "gap",
        "accelerators",
        "tree",
        "consistently",
        "shared",
        "fewer",
        "processes",
        "nodes",
        "outside",
        "group",
        "missing",
    ],
)
def test_a_tampered_suggestion_is_refused(suggestion: Suggestion, change: Any, words: str) -> None:
    with pytest.raises(roost.ConfigurationError, match=words) as caught:
        replace(suggestion, **change(suggestion)).verify()
    assert set(caught.value.codes) == {"RS105"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"b": "4-7"}, "do not start at the same accelerator"),
        ({"c": {"node_group": "node", "placement": "99"}}, "needs no"),
    ],
)
def test_a_placement_that_does_not_follow_its_tree_is_refused(changed: Any, words: str) -> None:
    components = {"a": {"seconds": {4: 10.0}}, "b": {"seconds": {4: 10.0}}, "c": {"seconds": 1.0}}
    weights = {"from": "b", "to": "a", "together": 0.1, "apart": 50.0}
    flow = {"a": [], "b": ["a"], "c": ["b"]}
    best = roost.suggest({"batch": 4, "flow": flow, "weights": weights, "components": components}, "1x8")
    best.verify()
    with pytest.raises(roost.ConfigurationError, match=words):
        replace(best, placement={**best.placement, **changed}).verify()


def test_a_present_placement_that_does_not_fit_has_no_seconds() -> None:
    part = {"seconds": {4: 10.0, 8: 6.0}, "memory_gib": 60, "resident_gib": 40}
    nodes = roost.Inventory.uniform(1, 8, memory_gib=80)
    present = roost.plan({"cluster": {"component_placement": {"a,b": "0-7"}}}, nodes)
    profile = {"batch": 1, "flow": {"a": [], "b": ["a"]}, "components": {"a": part, "b": part}}
    (found,) = [
        one
        for one in roost.suggest(profile, nodes, present=present).alternatives
        if one.name == "present placement"
    ]
    assert (found.seconds, found.why) == (
        None,
        "it does not fit: it needs 100 GiB per accelerator of 'cluster', which has 80",
    )


def test_what_the_relaxation_leaves_open_is_said() -> None:
    """There are too many arrangements to try them one by one."""
    components = {
        name: {"seconds": {8: work, 256: work / 20}, "streams": name != "e", "switch": 2.0}
        for name, work in (("a", 900.0), ("b", 500.0), ("c", 700.0), ("d", 300.0), ("e", 800.0))
    }
    flow = {name: [before] if before else [] for before, name in zip(["", *"abcd"], "abcde", strict=True)}
    best = roost.suggest({"batch": 64, "flow": flow, "components": components}, "32x8")
    done = best.verify()
    assert (done.method, done.complete) == ("relaxation", False)
    assert 0 < done.gap < 1e-3
    slower = best.alternatives[0]
    assert slower.tree is not None
    claimed = best.with_arrangement(slower.tree)
    assert claimed.verify().proven == pytest.approx(best.seconds, rel=1e-3)  # its gap is the truth
    with pytest.raises(roost.ConfigurationError, match="there is a faster arrangement"):
        replace(claimed, bound=claimed.seconds, gap=0.0).verify()


def test_where_arrangements_are_few_all_are_tried() -> None:
    """The relaxation does not add up the memory of three components."""
    part = {"seconds": {4: 20.0, 8: 6.0}, "memory_gib": 10, "resident_gib": 20}
    profile = {"batch": 1, "flow": {"a": [], "b": [], "c": []}, "components": dict.fromkeys("abc", part)}
    best = roost.suggest(profile, roost.Inventory.uniform(1, 8, memory_gib=45))
    assert relaxed(best.problem, Checker(best.problem).tables, best.seconds).bound < best.seconds
    assert (best.verify().method, best.verify().complete) == ("enumeration", True)


def test_an_order_that_feeds_backwards_is_refused(suggestion: Suggestion) -> None:
    tree = suggestion.arrangement
    assert isinstance(tree, (Turns, Beside))
    turned = type(tree)(first=tree.second, second=tree.first)
    with pytest.raises(roost.ConfigurationError, match="which feeds it"):
        replace(suggestion, arrangement=turned).verify()


# -- the simulator ---------------------------------------------------------------------------------------


def simple(tree: dict[str, Any], flow: dict[str, list[str]], fed: bool = False) -> bool:
    """Whether no `turns` is fed by, or feeds, what runs beside it: the model takes such a subtree for one machine."""
    if "component" in tree:
        return True
    ((kind, sides),) = tree.items()
    names = [json.dumps(side) for side in sides]
    linked = kind == "beside" and any(
        f'"{a}"' in names[0] and f'"{b}"' in names[1] for b, needs in flow.items() for a in needs
    )
    return not (linked and any('"turns"' in name for name in names)) and all(
        simple(side, flow) for side in sides
    )


def test_simulation_and_model_agree_without_tails() -> None:
    data = gzip.decompress((Path(__file__).parents[1] / "data/suggest.jsonl.gz").read_bytes())
    compared = 0
    for case in map(json.loads, data.splitlines()):
        if (
            "error" in case
            or "large" in case["id"]
            or "groups" in case
            or not case["id"].endswith(("0", "4"))
        ):
            continue
        problem = pose(
            read_profile(case["profile"]),
            roost.Inventory.from_dict(case["inventory"]).grouped(case.get("node_groups")),
        )
        tree = solver_tree(problem)
        if simple(tree.to_dict(), case["profile"]["flow"]):
            done = roost.simulate(tree, problem)
            assert abs(done.seconds - done.model_seconds) <= done.error + 1e-9 * done.seconds, case["id"]
            compared += 1
    assert compared > 20


def solver_tree(problem: Any) -> Any:

    tree = solve(problem).tree
    assert tree is not None
    return tree


def test_a_tail_makes_an_iteration_longer(suggestion: Suggestion) -> None:
    even = roost.simulate(suggestion.arrangement, suggestion.problem)
    long = roost.simulate(
        suggestion.arrangement, suggestion.problem, tails={"actor": 1.5, "rollout": 1.5}, seed=1
    )
    again = roost.simulate(
        suggestion.arrangement, suggestion.problem, tails={"actor": 1.5, "rollout": 1.5}, seed=1
    )
    assert long.seconds > even.seconds
    assert long == again


def test_the_best_few_are_ranked_by_replaying_them() -> None:
    """Where few items are very long, few large engines lose: the model, which knows no tails, cannot see it."""
    profile = {
        "batch": 16,
        "flow": {"rollout": [], "actor": ["rollout"]},
        "components": {
            "rollout": {"seconds": {4: 40.0, 8: 21.0}, "streams": True},
            "actor": {"seconds": {4: 38.0, 8: 20.0}, "streams": True},
        },
    }
    best = roost.suggest(profile, "1x8")
    even, long = best.replays(), best.replays({"rollout": 1.5})
    assert best.arrangement == min(even, key=lambda one: one.seconds).arrangement
    assert {type(one.arrangement) for one in even} == {Turns, Beside}
    for ranked in (even, long):
        assert [one.replayed for one in ranked] == sorted(one.replayed for one in ranked)
        assert all(one.seconds >= best.seconds for one in ranked)
    assert long == best.replays({"rollout": 1.5})
    assert long[0].replayed > even[0].replayed
    assert long[0].arrangement != best.arrangement
    other = best.with_arrangement(long[0].arrangement)
    assert other.bound == best.bound
    assert other.gap == pytest.approx(1 - best.seconds / other.seconds)
    other.verify()


def test_staleness_of_an_asynchronous_job() -> None:
    profile = {
        "batch": 8,
        "mode": "async",
        "flow": {"rollout": [], "actor": ["rollout"]},
        "weights": {"from": "actor", "to": "rollout", "together": 0.0, "apart": 1.0},
        "components": {"rollout": {"seconds": {4: 10.0}, "streams": True}, "actor": {"seconds": {4: 12.0}}},
    }
    found = roost.suggest(profile, "1x8")
    assert found.seconds == 13.0
    loose = roost.simulate(found.arrangement, found.problem)
    strict = roost.simulate(found.arrangement, found.problem, most_stale=1)
    assert loose.seconds == pytest.approx(13.0)
    assert strict.staleness <= 1 < loose.staleness
    assert strict.seconds >= loose.seconds
    alone = roost.simulate(found.arrangement, found.problem, most_stale=0)
    assert alone.staleness == 0
    assert alone.seconds == pytest.approx(
        10.0 + 12.0 + 1.0
    )  # one after the other, and the weights are renewed
