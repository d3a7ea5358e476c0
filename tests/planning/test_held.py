"""Which accelerators of a plan are idle, and which ones others hold."""

from __future__ import annotations

import pytest

import roost
from roost.planning.checks import idle
from roost.planning.preflight import Holder, Unused, unused_by_node


def planned(rule: str, shape: str = "2x8") -> roost.Plan:
    return roost.plan({"cluster": {"component_placement": {"actor": rule}}}, roost.Inventory.parse(shape))


def holder(node: int, count: float, devices: set[int] | None = None, name: str = "job 'b'") -> Holder:
    told = None if devices is None else frozenset(devices)
    return Holder(name=name, node=node, count=count, devices=told)


def test_without_holders_all_unused_accelerators_are_idle() -> None:
    assert unused_by_node(planned("0-11"), []) == {1: Unused(held={}, others=(4, 5, 6, 7), idle=4)}


@pytest.mark.parametrize(
    ("holders", "states", "idle_count", "advice"),
    [
        ([holder(1, 2, {6, 7})], "iihh", 2, "node 1: 4-5"),
        ([holder(1, 2, {2, 7})], "iiih", 3, "node 1: 4-6"),  # 2 is used by the plan
        ([holder(1, 3)], "pppp", 1, "node 1: 1 of 4-7"),
        ([holder(1, 0.5)], "pppp", 3, "node 1: 3 of 4-7"),  # a part of an accelerator is not idle
        ([holder(1, 1, {4}), holder(1, 1, name="x")], "hppp", 2, "node 1: 2 of 5-7"),
        ([holder(1, 2, set())], "pppp", 2, "node 1: 2 of 4-7"),  # its job has not told the numbers yet
        ([holder(1, 4)], "hhhh", 0, ""),
        ([holder(1, 1, {4}), holder(1, 3, name="x")], "hhhh", 0, ""),
        ([holder(1, 8)], "hhhh", 0, ""),
        (
            [holder(0, 8), holder(5, 8)],
            "iiii",
            4,
            "node 1: 4-7",
        ),  # no unused one is on node 0, and there is no 5
    ],
)
def test_what_others_hold_is_not_idle(
    holders: list[Holder], states: str, idle_count: int, advice: str
) -> None:
    plan = planned("0-11")
    unused = unused_by_node(plan, holders)[1]
    assert [unused.state_of(number) for number in range(4)] == [None] * 4
    assert "".join((unused.state_of(number) or "-")[0] for number in range(4, 8)) == states
    assert (unused.idle, unused.held_count) == (idle_count, 4 - idle_count)
    found = idle(plan, holders)
    assert [(one.code, one.what, one.why) for one in found] == (
        [("RW102", f"{idle_count} of 16 accelerators are idle", advice)] if idle_count else []
    )


def test_every_holder_of_an_accelerator_is_named() -> None:
    held = [holder(1, 1, {4}), holder(1, 1, {4, 5}, "other"), holder(1, 6, name="tasks")]
    assert unused_by_node(planned("0-11"), held)[1].held == {
        4: ("job 'b'", "other"),
        5: ("other",),
        6: ("tasks",),
        7: ("tasks",),
    }
