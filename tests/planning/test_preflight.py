"""Whether a reservation can be had, and in which pieces it is taken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roost
from roost.config.job import read_job
from roost.config.layout import Layout
from roost.inventory.nodes import Accelerators, Node
from roost.planning.preflight import Holder, availability, match, runs, shortages

NODES = [
    Node(rank=0, ip="10.0.0.1", accelerators=Accelerators(count=8)),
    Node(rank=1, ip="10.0.0.2", accelerators=Accelerators(count=4)),
    Node(rank=2, hostname="bare"),
]


def holder(name: str, node: int, count: float, *devices: int) -> Holder:
    return Holder(name=name, node=node, count=count, devices=frozenset(devices) if devices else None)


@pytest.mark.parametrize(
    ("needs", "holders"),
    [
        ({}, []),
        ({0: {0, 7}}, []),
        ({0: {0, 1}}, [holder("a", 0, 6, 2, 3, 4, 5, 6, 7)]),
        ({0: {0, 1}}, [holder("unknown numbers", 0, 6)]),
        ({0: {0}}, [holder("elsewhere", 1, 4)]),
        ({0: {0}}, [holder("half", 0, 0.5), holder("half more", 0, 0.5)]),
    ],
)
def test_what_fits(needs: dict[int, set[int]], holders: list[Holder]) -> None:
    assert shortages(needs, NODES, holders) == []


@pytest.mark.parametrize(
    ("needs", "holders", "why"),
    [
        ({1: set(range(6))}, [], "6 needed, 4 of 4 free"),
        ({2: {0}}, [], "1 needed, 0 of 0 free"),
        ({1: {0, 1}}, [holder("job 'a'", 1, 1, 1)], "2 needed, 3 of 4 free; job 'a' holds accelerator 1"),
        ({1: {0, 1}}, [holder("group 'x'", 1, 3)], "2 needed, 1 of 4 free; group 'x' holds 3"),
        ({1: {0}}, [holder("x", 1, 3.5)], "1 needed, 0.5 of 4 free; x holds 3.5"),
        ({1: {0}}, [holder("x", 1, 2), holder("y", 1, 2)], "1 needed, 0 of 4 free; x holds 2, y holds 2"),
        (
            {1: {0, 2}},
            [holder("job 'a'", 1, 1, 0), holder("job 'b'", 1, 2, 2, 3)],
            "2 needed, 1 of 4 free; job 'a' holds accelerator 0, job 'b' holds accelerator 2",
        ),
    ],
)
def test_what_does_not_fit_is_said_in_arithmetic(
    needs: dict[int, set[int]], holders: list[Holder], why: str
) -> None:
    (finding,) = shortages(needs, NODES, holders)
    assert finding.code == "RE107"
    assert finding.why == why
    assert str(NODES[next(iter(needs))]) in finding.what
    assert finding.remedy


def test_every_node_that_lacks_something_is_reported() -> None:
    findings = shortages({0: set(range(9)), 1: {0}, 2: {0}}, NODES, [])
    assert [finding.what.split(":")[0] for finding in findings] == ["node 0 (10.0.0.1)", "node 2 (bare)"]


@pytest.mark.parametrize(
    ("wanted", "free", "spare", "expected"),
    [
        ({0, 1}, range(4), None, [(True, (0, 1))]),
        ({2, 3}, range(4), None, [(False, (0, 1)), (True, (2, 3))]),
        ({0, 2}, range(4), None, [(True, (0,)), (False, (1,)), (True, (2,))]),
        ({2}, [2, 3], None, [(True, (2,))]),
        ({3}, [1, 3], None, [(False, (1,)), (True, (3,))]),
        ({1, 2, 3}, range(4), 0, [(True, (1, 2, 3))]),
        ({3}, range(4), 1, [(False, (2,)), (True, (3,))]),
        ({3}, range(4), -2, [(True, (3,))]),
        (set(), range(4), None, []),
    ],
)
def test_runs(
    wanted: set[int], free: list[int], spare: int | None, expected: list[tuple[bool, tuple[int, ...]]]
) -> None:
    assert runs(wanted, free, spare) == expected


@given(st.sets(st.integers(0, 15)), st.sets(st.integers(0, 15), min_size=1))
def test_taking_the_lowest_free_run_by_run_gives_exactly_the_wanted(
    taken: set[int], wanted: set[int]
) -> None:
    free = sorted(set(range(16)) - taken | wanted)
    pool, got = list(free), []
    for is_wanted, members in runs(wanted, free):
        granted, pool = pool[: len(members)], pool[len(members) :]  # as Ray does
        assert granted == list(members)
        got += granted if is_wanted else []
    assert set(got) == wanted


@given(st.sets(st.integers(0, 15), min_size=1), st.integers(-3, 20))
def test_the_wanted_always_fit_in_what_is_spared(wanted: set[int], spare: int) -> None:
    pieces = runs(wanted, range(16), spare)
    assert {device for is_wanted, part in pieces if is_wanted for device in part} == wanted
    assert sum(len(part) for is_wanted, part in pieces if not is_wanted) <= max(0, spare)


@pytest.mark.parametrize(
    ("planned", "granted", "expected"),
    [
        ([0, 1], ["0", "1"], {0: "0", 1: "1"}),
        ([2, 10], ["10", "2"], {2: "2", 10: "10"}),
        ([0, 1], ["2", "1"], {0: "2", 1: "1"}),
        ([0, 1, 2], ["3", "1", "10"], {0: "3", 1: "1", 2: "10"}),
    ],
)
def test_granted_names_go_to_the_planned_numbers(
    planned: list[int], granted: list[str], expected: dict[int, str]
) -> None:
    assert match(planned, granted, [str(number) for number in range(12)]) == expected


def test_names_of_a_masked_node() -> None:
    assert match([0, 1], ["5", "4"], ["4", "5"]) == {0: "4", 1: "5"}


@given(st.data())
def test_every_planned_device_gets_one_granted_name(data: st.DataObject) -> None:
    names = [str(number) for number in range(12)]
    granted = data.draw(st.lists(st.sampled_from(names), unique=True))
    planned = data.draw(st.permutations(range(12)))[: len(granted)]
    matched = match(planned, granted, names)
    assert set(matched) == set(planned)
    assert sorted(matched.values()) == sorted(granted)
    assert all(matched[device] == str(device) for device in planned if str(device) in granted)


# -- a plan on a cluster where others are ----------------------------------------------------------------


def on_two_nodes(source: Any) -> tuple[roost.Plan, Layout | None]:
    job, _ = read_job(source)
    return roost.plan(source, roost.Inventory.parse("2x8")), job.layout


RULES = {
    "cluster": {"component_placement": {"actor": "0-3,8-9", "env": {"node_group": "node", "placement": 1}}}
}


@pytest.mark.parametrize(
    ("holders", "found"),
    [
        ([], []),
        ([holder("a", 0, 4, 4, 5, 6, 7)], []),
        ([holder("a", 0, 2, 3, 4)], ["4 needed, 6 of 8 free; a holds accelerator 3"]),
        ([holder("a", 0, 4)], []),
        ([holder("a", 0, 5), holder("b", 1, 7)], ["4 needed, 3 of 8", "2 needed, 1 of 8"]),
        ([holder("beyond the job's nodes", 2, 8)], []),
    ],
)
def test_what_others_hold_of_a_plan(holders: list[Holder], found: list[str]) -> None:
    findings = availability(*on_two_nodes(RULES), holders)
    assert [one.code for one in findings] == ["RE107"] * len(found)
    assert all(words in one.why for words, one in zip(found, findings, strict=True))


POOL = {"actor_num_nodes": 1, "actor_num_gpus_per_node": 4, "rollout_num_gpus": 6}


@pytest.mark.parametrize(
    ("more", "holders", "codes"),
    [
        ({}, [], []),
        ({}, [holder("a", 0, 6, 0, 1, 2, 3, 4, 5)], ["RW204"]),  # ten of the others are free: it moves
        ({}, [holder("a", 0, 7)], ["RE107"]),
        ({"accelerators": "0-9"}, [holder("a", 0, 1, 0)], ["RE107"]),  # it was told where to be
        ({"accelerators": "0-9"}, [holder("a", 1, 6, 2, 3, 4, 5, 6, 7)], []),
        ({"actor_num_nodes": 0, "rollout_num_gpus": 0}, [holder("a", 0, 8)], []),
    ],
)
def test_a_pool_takes_what_is_free(more: dict[str, Any], holders: list[Holder], codes: list[str]) -> None:
    findings = availability(*on_two_nodes({"cluster": {"layout": {**POOL, **more}}}), holders)
    assert [one.code for one in findings] == codes
