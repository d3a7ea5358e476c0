"""Warnings about plans that can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from roost.config.plain_data import PLACEMENTS
from roost.config.ranks import Ranks, parse_ranks, ranges
from roost.errors import Finding, Path
from roost.inventory.resources import ACCELERATOR
from roost.planning.component_plan import ComponentPlan
from roost.planning.plan import Plan
from roost.planning.preflight import Holder, unused_by_node

_SHOWN = 4
_WIDEST_SEAM = 2  # resources; components that share more do so on purpose
_MOST_SEAMS = 20


def check(plan: Plan, laid_out: Collection[str] = ()) -> list[Finding]:
    """All warnings about a plan; `laid_out` are the components that a layout placed."""
    findings = [*idle(plan), *_crowded(plan), *islice(_seams(plan, laid_out), _MOST_SEAMS)]
    for name, component in plan.components.items():
        place = ("layout",) if name in laid_out else ("component_placement", name)
        findings += _mixed_models(plan, component, ("cluster", *place))
    return findings


def _listed(items: Sequence[str], between: str = "; ") -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return between.join(items[:_SHOWN]) + more


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
    what = f"{count:,} of {plan.inventory.num_accelerators:,} accelerators are idle"
    where = _listed([f"{_nodes(nodes)}: {numbers}" for numbers, nodes in same.items()])
    remedy = "place a component there, or ask for fewer nodes"
    return [Finding(code="RW102", what=what, why=where, remedy=remedy)]


def _crowded(plan: Plan) -> Iterator[Finding]:
    on_node: Counter[int] = Counter()
    for component in plan.components.values():
        on_node.update(place.cluster_node_rank for place in component.members)
    nodes = plan.inventory.nodes
    crowded = [
        f"{nodes[rank]}: {count} processes, {nodes[rank].cpus} CPUs"
        for rank, count in sorted(on_node.items())
        if nodes[rank].cpus is not None and count > (nodes[rank].cpus or 0)
    ]
    if crowded:
        remedy = "spread them over more nodes, or start fewer"
        yield Finding(code="RW104", what="more processes than CPUs", why=_listed(crowded), remedy=remedy)


def _mixed_models(plan: Plan, component: ComponentPlan, path: Path) -> Iterator[Finding]:
    if len({(node.accelerators.type, node.accelerators.model) for node in plan.inventory.nodes}) < 2:
        return
    models: Counter[str] = Counter()
    example: dict[str, int] = {}
    for place in component.members:
        if place.holds_accelerators:
            held = plan.inventory.nodes[place.cluster_node_rank].accelerators
            model = held.model or held.type
            models[model] += 1
            example.setdefault(model, place.rank)
    if len(models) < 2:
        return
    common = models.most_common()
    parts = [f"{count} on {model}" for model, count in common[:_SHOWN]]
    if len(common) > _SHOWN:
        parts.append(f"{len(common) - _SHOWN} models more")
    rare = common[-1][0]
    alone = f"; rank {example[rare]} is alone on {rare}" if models[rare] == 1 else ""
    yield Finding(
        code="RW103",
        what=f"{component.name}: its processes sit on different accelerators ({', '.join(parts)}){alone}",
        why="a collective runs at the pace of the slowest",
        remedy="place it through a group of one model",
        path=path,
    )


def _seams(plan: Plan, laid_out: Collection[str]) -> Iterator[Finding]:
    """Components such as 0-8 and 8-15 that share the end of one range and the start of the other, no more.

    Compares the rules, not the processes: there may be a million processes.
    """
    placed: dict[tuple[str, ...], dict[Ranks, list[str]]] = {}  # by node groups and range, the components
    for name, component in plan.components.items():
        on_hardware = bool(component.members and component.members[0].hardware)
        whole = _whole_range(component.rule) if on_hardware and name not in laid_out else None
        if whole is not None:
            labels = component.node_groups or ("cluster",)
            placed.setdefault(labels, {}).setdefault(whole, []).append(name)
    for labels, components in placed.items():
        starting: dict[int, list[Ranks]] = {}
        for held in components:
            starting.setdefault(held.first, []).append(held)
        for low in components:
            for first in range(low.last - _WIDEST_SEAM + 1, low.last + 1):
                for high in starting.get(first, ()):
                    seam = Ranks(first, low.last)
                    if min(len(low), len(high)) >= 4 * len(seam):
                        yield _seam(plan, labels, components[low], low, components[high], high)


def _whole_range(rule: str) -> Ranks | None:
    """The range of a rule's resources, if they are consecutive."""
    whole: Ranks | None = None
    for segment in parse_ranks(rule).segments:
        held = segment.resources
        if held is None or (whole is not None and held.first != whole.last + 1):
            return None
        whole = Ranks(whole.first if whole else held.first, held.last)
    return whole


def _seam(
    plan: Plan, labels: tuple[str, ...], below: list[str], low: Ranks, above: list[str], high: Ranks
) -> Finding:
    groups = [plan.inventory.groups.get(label) for label in labels]
    kinds = {(group and group.hardware_type) or ACCELERATOR for group in groups}
    shared = Ranks(high.first, low.last)
    noun = (kinds.pop() if len(kinds) == 1 else "resource") + "s" * (len(shared) > 1)
    lower, upper = _listed(below, ", "), _listed(above, ", ")
    return Finding(
        code="RW108",
        what=f"{lower} ({low}) and {upper} ({high}) share {noun} {shared} and nothing else",
        why="a range includes its last rank",
        remedy=f"{Ranks(low.first, high.first - 1)} and {high}, or {low} and {Ranks(low.last + 1, high.last)}, "
        "would be apart",
        path=(*PLACEMENTS, above[0]),
    )
