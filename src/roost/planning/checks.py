"""What a plan should be told about although it can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from roost.config.ranks import ranges
from roost.errors import Finding, Path
from roost.planning.component_plan import ComponentPlan
from roost.planning.held import unused_by_node
from roost.planning.plan import Plan
from roost.planning.preflight import Holder

__all__ = ["check", "ranges"]

_SHOWN = 4


def check(plan: Plan, laid_out: Collection[str] = ()) -> list[Finding]:
    """Advice; `laid_out` are the components a layout placed."""
    findings = [*idle(plan), *_crowded(plan)]
    for name, component in plan.components.items():
        place = ("layout",) if name in laid_out else ("component_placement", name)
        findings += _mixed_models(plan, component, ("cluster", *place))
    return findings


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return "; ".join(items[:_SHOWN]) + more


def _nodes(ranks: Sequence[int]) -> str:
    """`node 3`, or `nodes 0-7`, or `nodes 1,3,5,7 and more`."""
    spans = ranges(ranks).split(",")
    more = " and more" if len(spans) > _SHOWN else ""
    return f"node{'s' * (len(ranks) > 1)} {','.join(spans[:_SHOWN])}{more}"


def idle(plan: Plan, held: Sequence[Holder] = ()) -> list[Finding]:
    """Advice to use the accelerators that neither a component uses nor others hold."""
    same: dict[str, list[int]] = {}
    count = 0
    for node, unused in unused_by_node(plan, held).items():
        if unused.idle:
            same.setdefault(unused.idle_numbers, []).append(node)
            count += unused.idle
    if not count:
        return []
    where = [f"{_nodes(nodes)}: {numbers}" for numbers, nodes in same.items()]
    return [
        Finding(
            code="RW102",
            what=f"{count:,} of {plan.inventory.num_accelerators:,} accelerators are idle",
            why=_listed(where),
            remedy="place a component there, or ask for fewer nodes",
        )
    ]


def _crowded(plan: Plan) -> list[Finding]:
    on_node: Counter[int] = Counter()
    for component in plan.components.values():
        on_node.update(place.cluster_node_rank for place in component.members)
    nodes = plan.inventory.nodes
    crowded = [
        f"{nodes[rank]}: {count} processes, {nodes[rank].cpus} CPUs"
        for rank, count in sorted(on_node.items())
        if nodes[rank].cpus is not None and count > (nodes[rank].cpus or 0)
    ]
    if not crowded:
        return []
    return [
        Finding(
            code="RW104",
            what="more processes than CPUs",
            why=_listed(crowded),
            remedy="spread them over more nodes, or start fewer",
        )
    ]


def _mixed_models(plan: Plan, component: ComponentPlan, path: Path) -> list[Finding]:
    if len({(node.accelerators.type, node.accelerators.model) for node in plan.inventory.nodes}) < 2:
        return []
    models: Counter[str] = Counter()
    example: dict[str, int] = {}
    for place in component.members:
        if place.holds_accelerators:
            held = plan.inventory.nodes[place.cluster_node_rank].accelerators
            model = held.model or held.type
            models[model] += 1
            example.setdefault(model, place.rank)
    if len(models) < 2:
        return []
    common = models.most_common()
    parts = [f"{count} on {model}" for model, count in common[:_SHOWN]]
    if len(common) > _SHOWN:
        parts.append(f"{len(common) - _SHOWN} models more")
    rare = common[-1][0]
    alone = f"; rank {example[rare]} is alone on {rare}" if models[rare] == 1 else ""
    return [
        Finding(
            code="RW103",
            what=f"{component.name}: its processes sit on different accelerators ({', '.join(parts)}){alone}",
            why="a collective runs at the pace of the slowest",
            remedy="place it through a group of one model",
            path=path,
        )
    ]
