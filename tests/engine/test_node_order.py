"""The order of nodes is the same on every run, whoever joined first."""

from __future__ import annotations

import random
import threading
from collections.abc import Collection
from typing import Any

import pytest

import roost
from roost.engine.connection.discovery import addresses_of, nodes_to_ask
from roost.engine.connection.embedded import INDEX_LABEL
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


def test_nodes_that_declare_the_same_ranks_take_them_by_address() -> None:
    expected = [
        node("10.0.0.9", declared_rank="0,3", is_master=True),
        node("10.0.0.3", declared_rank="1-2"),
        node("gpu-b", declared_rank="1-2"),
        node("10.0.0.12", declared_rank="0,3"),
        node("10.0.0.1", declared_rank="4"),
    ]
    for seed in range(5):
        shuffled = random.Random(seed).sample(expected, len(expected))
        assert order_nodes(shuffled, lambda names: {"gpu-b": "10.0.0.10"}) == expected


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
        (["0", "1-2", "2"], "h1 (10.0.0.1): 1-2"),
        (["0-2", "0-2", "2"], "h0 (10.0.0.0): 0-2"),
        (["0", "2-1", "2-1"], "h1 (10.0.0.1): 2-1"),
        (["0", "1-99999", "1-99999"], "h1 (10.0.0.1): 1-99999"),
        (["0", "1,1", "1,1"], "h1 (10.0.0.1): 1,1"),
    ],
    ids=[
        *("mixed", "duplicate", "out of range", "negative", "a word", "leading zero", "empty"),
        *("too few of several", "overlap", "backwards", "several out of range", "one twice"),
    ],
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


NAMES = {"gpu-b": "10.0.0.10", "gpu-a": "10.0.0.9", "head": "10.9.9.9", "six": "fd00::1"}


def test_host_names_are_ordered_by_their_addresses() -> None:
    expected = [
        node("head", is_master=True),
        node("10.0.0.3"),
        node("gpu-a"),
        node("gpu-b"),
        node("10.0.0.11"),
        node("six"),
        node("another"),
        node("nowhere"),
    ]
    asked: list[list[str]] = []

    def resolve(names: Collection[str]) -> dict[str, str]:
        asked.append(list(names))
        return {name: NAMES[name] for name in names if name in NAMES}

    for seed in range(5):
        assert order_nodes(random.Random(seed).sample(expected, len(expected)), resolve) == expected
    assert asked == [["another", "gpu-a", "gpu-b", "head", "nowhere", "six"]] * 5


@pytest.mark.parametrize(
    "nodes",
    [[node("10.0.0.1"), node("fd00::1")], [node("a", declared_rank="0"), node("b", declared_rank="1")]],
    ids=["addresses", "declared ranks"],
)
def test_nothing_is_resolved_without_need(nodes: list[NodeInfo]) -> None:
    def resolve(names: Collection[str]) -> dict[str, str]:
        raise AssertionError(names)

    assert order_nodes(nodes[::-1], resolve) == nodes


def test_names_are_resolved_at_the_same_time() -> None:
    names = [f"host{number}" for number in range(8)]
    together = threading.Barrier(len(names))

    def lookup(name: str) -> str | None:
        together.wait(60)  # nobody is answered before everybody has asked
        return None if name == "host3" else f"10.0.0.{name[-1]}"

    found = addresses_of(names, 60, lookup)
    assert found == {name: f"10.0.0.{name[-1]}" for name in names if name != "host3"}


def test_a_silent_name_server_is_not_waited_for() -> None:
    answered = threading.Event()

    def lookup(name: str) -> str | None:
        answered.wait(60)
        return "10.0.0.1"

    try:
        assert addresses_of([f"host{number}" for number in range(100)], 0.01, lookup) == {}
    finally:
        answered.set()


def test_the_resolver_of_the_system() -> None:
    assert addresses_of(["localhost", "x" * 70 + ".y"], 60) == {"localhost": "127.0.0.1"}
    assert addresses_of([]) == {}


@pytest.mark.parametrize(
    ("labels", "num_nodes", "asked"),
    [
        (["10", "2", "0", "1"], 2, ["0", "1"]),
        (["2", "0", "1"], 4, ["0", "1", "2"]),
        (["2", "0", "1"], None, ["2", "0", "1"]),
        (["2", None, "0"], 1, ["2", None, "0"]),  # somebody's own node has joined
        ([None, None], 1, [None, None]),
    ],
)
def test_of_an_embedded_cluster_only_the_first_nodes_are_asked(
    labels: list[str | None], num_nodes: int | None, asked: list[str | None]
) -> None:
    nodes = [
        {"NodeID": str(number), "Labels": {INDEX_LABEL: label} if label else {}}
        for number, label in enumerate(labels)
    ]
    assert [one["Labels"].get(INDEX_LABEL) for one in nodes_to_ask(nodes, num_nodes)] == asked
