"""What holds for every job on every cluster."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

import roost
from roost.config.ranks import RankSpec, parse_ranks
from roost.placement.placement import Device
from roost.planning.occupancy import Use
from roost.planning.shares import charge
from strategies import JobCase, inventories, jobs, layouts, rank_texts, wishes


def planned(case: JobCase) -> roost.Plan:
    return roost.plan(case.config, case.inventory)


def kind_of(plan: roost.Plan, place: roost.Placement) -> str | None:
    group = plan.inventory.groups.get(place.node_group_label)
    return group.hardware_type if group else None


@given(jobs())
def test_ranks_nodes_and_devices(case: JobCase) -> None:
    plan = planned(case)
    assert list(plan.components) == list(case.config["cluster"]["component_placement"])
    for component in plan.components.values():
        assert [place.rank for place in component.placements] == list(range(component.world_size))
        for place in component.placements:
            node = plan.inventory.nodes[place.cluster_node_rank]
            assert node.rank == place.cluster_node_rank
            units = node.accelerators.count
            if kind_of(plan, place):
                hardware = plan.inventory.groups[place.node_group_label].hardware
                units = sum(unit.node_rank == node.rank for unit in hardware)
            held = place.local_hardware_ranks
            assert held == sorted(set(held))
            assert set(held) <= set(range(units))
            assert set(place.visible_accelerators) <= {str(n) for n in range(node.accelerators.count)}
            assert place.accelerator_type == node.accelerators.type


@given(jobs())
def test_no_process_spans_nodes(case: JobCase) -> None:
    """Told from the resource ranks themselves: those of one process all lie on its node."""
    placed = roost.ComponentPlacement(case.config, case.inventory)
    for name in placed.components:
        strategy: Any = placed.get_strategy(name)
        resources = placed.inventory.resources(placed.plan.components[name].node_groups)
        if resources.bare:
            nodes = [[resources.slots[rank].node.rank] for rank in strategy.node_ranks]
        else:
            owner = [slot.node.rank for slot in resources.slots for _ in range(slot.count)]
            nodes = [[owner[rank] for rank in ranks] for ranks in strategy.hardware_ranks_list]
        assert [set(on) for on in nodes] == [
            {place.cluster_node_rank} for place in placed.get_placements(name)
        ]


@given(jobs())
def test_local_counts_agree(case: JobCase) -> None:
    for component in planned(case).components.values():
        order: list[int] = []
        seen: Counter[int] = Counter()
        total = Counter(place.cluster_node_rank for place in component.placements)
        for place in component.placements:
            if place.cluster_node_rank not in order:
                order.append(place.cluster_node_rank)
            assert place.placement_node_rank == order.index(place.cluster_node_rank)
            assert place.local_rank == seen[place.cluster_node_rank]
            assert place.local_world_size == total[place.cluster_node_rank]
            seen[place.cluster_node_rank] += 1
        assert component.nodes == order


@given(jobs())
def test_sharing_is_counted_right(case: JobCase) -> None:
    plan = planned(case)
    uses: dict[Device, list[str]] = {}
    for name, component in plan.components.items():
        for place in component.placements:
            robot = kind_of(plan, place)
            for number in place.local_hardware_ranks:
                label = place.node_group_label if robot else ""
                device = Device(place.cluster_node_rank, robot or "accelerator", label, number)
                uses.setdefault(device, []).append(name)
    assert plan.occupancy == {
        device: tuple(Use(name, names.count(name)) for name in dict.fromkeys(names))
        for device, names in uses.items()
    }
    assert set(plan.shared) == {device for device, names in uses.items() if len(names) > 1}
    every = {
        Device(node.rank, "accelerator", "", number)
        for node in plan.inventory.nodes
        for number in range(node.accelerators.count)
    }
    assert set(plan.idle) == every - set(uses)
    assert len(plan.idle) == len(set(plan.idle))


@given(jobs())
def test_plan_survives_json(case: JobCase) -> None:
    plan = planned(case)
    again = roost.Plan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan
    assert again.digest == plan.digest
    assert hash(again) == hash(plan)
    assert again.to_dict() == plan.to_dict()


@given(jobs())
def test_plan_survives_pickling(case: JobCase) -> None:
    plan = planned(case)
    assert pickle.loads(pickle.dumps(plan)) == plan


@given(jobs(), st.randoms())
def test_digest_does_not_depend_on_the_order_of_components(case: JobCase, random: Any) -> None:
    rules = list(case.config["cluster"]["component_placement"].items())
    random.shuffle(rules)
    cluster = {**case.config["cluster"], "component_placement": dict(rules)}
    assert roost.plan({"cluster": cluster}, case.inventory).digest == planned(case).digest


def meaning(spec: RankSpec) -> list[tuple[Any, Any]]:
    return [(segment.resources, segment.processes) for segment in spec.segments]


@given(rank_texts())
def test_parsing_what_was_printed(text: str) -> None:
    spec = parse_ranks(text)
    printed = str(spec)
    assert meaning(parse_ranks(printed)) == meaning(spec)
    assert str(parse_ranks(printed)) == printed
    assert " " not in printed
    segments = [segment.place for segment in spec.segments]
    assert [text[start : start + length].replace(" ", "") for start, length in segments] == [
        piece.replace(" ", "") for piece in text.split(",")
    ]


@given(
    inventories(), st.integers(0, 6), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.booleans()
)
def test_packed_is_the_flexible_list_it_stands_for(
    inventory: roost.Inventory, start: int, width: int, stride: int, blocks: int, isolate: bool
) -> None:
    end = start + width * stride * blocks - 1
    ranks = [
        [base + offset + stride * step for step in range(width)]
        for base in range(start, end + 1, width * stride)
        for offset in range(stride)
    ]

    def outcome(strategy: roost.PlacementStrategy) -> Any:
        try:
            return strategy.get_placement(inventory, isolate)
        except roost.PlacementError:
            return "refused"

    packed = outcome(roost.PackedPlacementStrategy(start, end, width, stride))
    assert packed == outcome(roost.FlexiblePlacementStrategy(ranks))


@given(st.integers(1, 5), st.data())
def test_bare_nodes_give_a_node_strategy(number: int, data: st.DataObject) -> None:
    inventory = roost.Inventory.uniform(number, data.draw(st.sampled_from([0, 8])))
    first = data.draw(st.integers(0, number - 1))
    last = data.draw(st.integers(first, number - 1))
    count = data.draw(st.integers(last - first + 1, 20))
    rule = {"node_group": "node", "placement": f"{first}-{last}:0-{count - 1}"}
    placed = roost.ComponentPlacement({"cluster": {"component_placement": {"w": rule}}}, inventory)
    strategy = placed.get_strategy("w")
    assert isinstance(strategy, roost.NodePlacementStrategy)
    each, extra = divmod(count, last - first + 1)
    nodes = [
        node
        for index, node in enumerate(range(first, last + 1))
        for _ in range(each + (1 if index < extra else 0))
    ]
    assert list(placed.get_placements("w")) == roost.NodePlacementStrategy(nodes, "node").get_placement(
        inventory
    )
    assert placed.get_hardware_ranks("w") == list(range(first, last + 1))


@given(jobs())
def test_component_placement_says_what_the_plan_says(case: JobCase) -> None:
    plan = planned(case)
    placed = roost.ComponentPlacement(case.config, case.inventory)
    for name, component in plan.components.items():
        assert component.placements == placed.get_strategy(name).get_placement(placed.inventory)
        assert component.world_size == placed.get_world_size(name)


@given(layouts())
def test_slices_lie_in_the_pool_and_engines_in_the_rollout(layout: roost.Layout) -> None:
    slices = layout.slices()
    pool = range(layout.reserved)
    assert all(set(held) <= set(pool) for held in slices.values())
    assert len(slices["actor"]) == min(layout.num_actor, layout.reserved)
    engines = [position for part in layout.engine_groups() for position in part.positions]
    assert engines == sorted(set(engines))
    if layout.mode.serves:
        assert engines == list(slices["rollout"])
        assert {*engines, *(slices["actor"] if layout.mode.trains else ())} == set(pool)
    else:
        assert not engines
        assert slices["actor"] == pool


@given(layouts(), inventories())
def test_engines_lie_on_one_node_or_on_whole_ones(layout: roost.Layout, inventory: roost.Inventory) -> None:
    """What is planned is right, and what is refused could not be planned: both told from the positions."""
    owner = [(node.rank, number) for node in inventory.nodes for number in range(node.accelerators.count)]
    sizes = {node.rank: node.accelerators.count for node in inventory.nodes}

    def tiles(held: list[tuple[int, int]]) -> bool:
        counts = Counter(node for node, _ in held)
        whole = {sizes[node] for node in counts} == set(counts.values()) and len(set(counts.values())) == 1
        return len(counts) == 1 or whole

    engines = {
        part.component: [
            owner[first : first + part.gpus_per_engine] for first in part.positions[:: part.gpus_per_engine]
        ]
        for part in layout.engine_groups()
    }
    even = all(len({len({node for node, _ in held}) for held in part}) < 2 for part in engines.values())
    fits = layout.reserved <= len(owner) and all(tiles(held) for part in engines.values() for held in part)
    fits = fits and even
    refused, plan = None, None
    try:
        plan = roost.plan(layout, inventory)
    except roost.PlacementError as error:
        refused = error
    event("planned" if plan else "refused")
    if refused or plan is None:
        assert refused is not None
        assert {"RP110", "RP111", "RP112"}.issuperset(refused.codes)
        assert all(finding.remedy for finding in refused.findings)
        assert not fits or set(refused.codes) == {"RP111"}
        return
    assert fits
    assert list(plan.components) == layout.components
    for name, expected in engines.items():
        held = [
            (place.cluster_node_rank, number)
            for place in plan.components[name].placements
            for number in place.local_hardware_ranks
        ]
        assert held == [device for engine in expected for device in engine]
        spans = [len({node for node, _ in engine}) for engine in expected]
        assert plan.components[name].world_size == sum(spans)
        assert len(set(spans)) == 1
    again = roost.Plan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert again == plan
    assert again.charges == plan.charges
    assert all(round(sum(charged.values()), 9) <= 1 for charged in plan.charges.values())
    assert roost.plan(layout.as_job(), inventory) == plan
    assert roost.Layout.from_args(layout.as_job()["cluster"]["layout"] | {"shares": layout.shares}) == layout


@given(st.lists(st.sampled_from([4, 8, 16]), min_size=2, max_size=5), st.sampled_from([8, 16]))
def test_engines_of_a_group_span_as_many_nodes_each(sizes: list[int], width: int) -> None:
    owner = [node for node, size in enumerate(sizes) for _ in range(size)]
    layout = roost.Layout(
        actor_num_nodes=0,
        rollout_num_gpus=len(owner) // width * width,
        rollout_num_gpus_per_engine=width,
    )
    engines = [owner[first : first + width] for first in range(0, layout.num_rollout, width)]
    spans = [len(set(held)) for held in engines]
    event(f"spans {sorted(set(spans))}")
    tiled = all(
        len(set(held)) == 1
        or {held.count(node) for node in held} == {sizes[node] for node in held} == {count}
        for held in engines
        for count in [held.count(held[0])]
    )
    refused: tuple[str, ...] = ()
    try:
        plan = roost.plan(layout, roost.Inventory.parse(",".join(f"1x{size}" for size in sizes)))
    except roost.PlacementError as error:
        refused = error.codes
    assert refused == (() if tiled and len(set(spans)) < 2 else ("RP110",))
    if engines and not refused:
        assert plan.components["rollout"].world_size == sum(spans)


NAMES = ["actor", "critic", "rollout", "rollout.decode", "env", "reward"]


@given(st.lists(st.sampled_from(NAMES), unique=True, min_size=1), wishes(NAMES))
def test_an_accelerator_is_never_overdrawn(names: list[str], asked: dict[str, float]) -> None:
    try:
        charged = charge([Use(name, 1) for name in names], asked)
    except roost.PlacementError:
        assert sum(asked.get(name, 0) for name in names) > 0.999
        return
    assert list(charged) == names
    assert round(sum(charged.values()), 9) <= 1
    assert all(share >= 0.0001 and round(share, 4) == share for share in charged.values())
    if len(names) > 1:
        assert all(asked[name] - 0.0001 < charged[name] <= asked[name] for name in names if name in asked)


@given(jobs())
def test_charges_of_processes_never_exceed_one(case: JobCase) -> None:
    plan = planned(case)
    total: Counter[Device] = Counter()
    for name, component in plan.components.items():
        for place in component.placements:
            share = plan.share_of(name, place.rank)
            for device in place.devices:
                if not device.group:
                    assert share > 0
                    total[device] += round(share * 10_000)
    assert set(total) == set(plan.charges)
    assert all(ticks <= 10_000 for ticks in total.values())
