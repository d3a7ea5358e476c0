"""The order of nodes is the same on every run, whoever joined first."""

from __future__ import annotations

import random
from typing import Any

import pytest

import roost
from roost.inventory.nodes import NO_ACCELERATORS
from roost.inventory.ordering import NodeInfo, order_nodes


def node(ip: str = "10.0.0.1", **more: Any) -> NodeInfo:
    return NodeInfo(
        **{"node_id": f"{ip}/{more}", "ip": ip, "hostname": "", "accelerators": NO_ACCELERATORS, **more}
    )


@pytest.mark.parametrize(
    "expected",
    [
        [node("10.0.0.2"), node("10.0.0.9"), node("10.0.0.10"), node("10.0.1.1"), node("192.168.0.1")],
        [node("fd00::2"), node("fd00::a"), node("fd00::10"), node("fd00:0:0:1::1")],
        [node("9.9.9.9"), node("10.0.0.1"), node("fd00::1"), node("somewhere")],
        [node("10.0.0.200", is_master=True), node("10.0.0.3"), node("10.0.0.20")],
        [node(hostname="a1"), node(hostname="b0"), node(hostname="b1")],
        [node(hostname="same", label=label) for label in (0, 1, 2, 9, 10, 11)],
        [node(hostname="same", label=2, is_master=True), node(hostname="same", label=0)],
    ],
    ids=["ipv4", "ipv6", "mixed", "master", "host names", "labels", "master before labels"],
)
def test_the_natural_order(expected: list[NodeInfo]) -> None:
    """Pitfall: IPs sort as strings; node ids as the fallback order change on every restart."""
    for seed in range(5):
        shuffled = random.Random(seed).sample(expected, len(expected))
        assert order_nodes(shuffled) == expected


def test_declared_ranks_decide_over_everything_else() -> None:
    nodes = [
        node("10.0.0.1", declared_rank="2", is_master=True),
        node("10.0.0.2", declared_rank="0"),
        node("10.0.0.3", declared_rank="1"),
    ]
    assert [one.declared_rank for one in order_nodes(nodes)] == ["0", "1", "2"]
    many = [node(f"10.0.0.{number}", declared_rank=str(number)) for number in range(12)]
    assert order_nodes(many[::-1]) == many


@pytest.mark.parametrize(
    ("declared", "listed"),
    [
        (["0", None, "1"], "unset"),
        (["0", "1", "1"], "h2 (10.0.0.2): 1"),
        (["0", "1", "3"], "h2 (10.0.0.2): 3"),
        (["-1", "0", "1"], "h0 (10.0.0.0): -1"),
        (["0", "1", "two"], "h2 (10.0.0.2): two"),
        (["00", "1", "2"], "h0 (10.0.0.0): 00"),
        (["", "1", "2"], "h0 (10.0.0.0): "),
    ],
    ids=["mixed", "duplicate", "out of range", "negative", "a word", "leading zero", "empty"],
)
def test_contradicting_ranks_are_listed(declared: list[str | None], listed: str) -> None:
    nodes = [
        node(f"10.0.0.{number}", hostname=f"h{number}", declared_rank=rank)
        for number, rank in enumerate(declared)
    ]
    with pytest.raises(roost.ClusterError) as caught:
        order_nodes(nodes)
    assert caught.value.codes == ("RE105",)
    assert listed in str(caught.value)
    assert all(f"h{number} (10.0.0.{number}): " in str(caught.value) for number in range(3))
    assert "0..2" in str(caught.value)
