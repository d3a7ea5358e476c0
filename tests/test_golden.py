"""Every recorded case: the same placements field by field, or an error of the promised kind."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import roost

CASES = [
    json.loads(line)
    for line in gzip.decompress(
        (Path(__file__).parent / "data/placements.jsonl.gz").read_bytes()
    ).splitlines()
]
STRATEGIES = {
    "packed": roost.PackedPlacementStrategy,
    "flexible": roost.FlexiblePlacementStrategy,
    "node": roost.NodePlacementStrategy,
}
SIZES = ("actor_dp_size", "rollout_dp_size", "inference_dp_size")


def recorded(placement: dict[str, Any]) -> dict[str, Any]:
    """The recording holds device numbers, roost gives them as text."""
    return {
        **placement,
        "visible_accelerators": [str(number) for number in placement["visible_accelerators"]],
    }


def assert_same(placements: list[roost.Placement], expected: list[dict[str, Any]]) -> None:
    got = [
        {name: getattr(place, name) for name in want}
        for place, want in zip(placements, expected, strict=True)
    ]
    assert got == [recorded(want) for want in expected]


def strategy_case(case: dict[str, Any], inventory: roost.Inventory) -> None:
    strategy = STRATEGIES[case["kind"]](**case["strategy"])
    placements = strategy.get_placement(inventory.grouped(case["node_groups"]), case["isolate_accelerator"])
    assert_same(placements, case["expect"])


def component_case(case: dict[str, Any], inventory: roost.Inventory) -> None:
    placed = roost.ComponentPlacement(case["config"], inventory)
    assert set(placed.components) == set(case["expect"])
    for name, want in case["expect"].items():
        assert placed.get_world_size(name) == want["world_size"]
        assert placed.get_hardware_ranks(name) == want["hardware_ranks"]
        assert_same(placed.get_strategy(name).get_placement(inventory), want["placements"])


def model_parallel_case(case: dict[str, Any], inventory: roost.Inventory) -> None:
    placed = roost.ModelParallelComponentPlacement(case["config"], inventory)
    expect = case["expect"]
    assert placed.placement_mode.name == expect["mode"]
    assert {size: getattr(placed, size) for size in SIZES} == {size: expect[size] for size in SIZES}
    for name, want in expect["placements"].items():
        assert_same(placed.get_strategy(name).get_placement(inventory), want)


def run(case: dict[str, Any]) -> None:
    inventory = roost.Inventory.from_dict(case["inventory"])
    if case["kind"] == "component":
        component_case(case, inventory)
    elif case["kind"] == "model_parallel":
        model_parallel_case(case, inventory)
    else:
        strategy_case(case, inventory)


def test_all_cases_are_there() -> None:
    assert len(CASES) == 1486
    assert {case["verdict"] for case in CASES} == {"match", "error"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}-{case['id']}")
def test_golden(case: dict[str, Any]) -> None:
    if case["verdict"] == "match":
        run(case)
        return
    with pytest.raises(roost.RoostError) as caught:
        run(case)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AssertionError)
    assert all(
        finding.what and finding.remedy for finding in caught.value.findings if finding.severity == "error"
    )
