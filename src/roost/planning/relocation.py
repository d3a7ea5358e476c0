"""Moves the processes of lost nodes to spare nodes: a new plan, and the fewest moves that lead to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from roost.inventory.groups import NodeGroup
from roost.planning.component_plan import ComponentPlan, accelerators_of
from roost.planning.plan import Plan
from roost.planning.policy_checks import on_robots


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    component: str
    rank: int
    source: int  # node ranks
    target: int

    def __str__(self) -> str:
        return f"{self.component} rank {self.rank}: node {self.source} -> node {self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    plan: Plan
    moves: tuple[Move, ...] = ()
    stranded: tuple[str, ...] = ()  # components with processes on lost nodes that no spare node can take


def relocate(plan: Plan, lost: Collection[int], spare: Mapping[str, Collection[int]]) -> Relocation:
    """Move the processes that sit on lost nodes, and no others.

    `spare` names the spare nodes of each component that may move. All processes of a lost node go to one spare
    node, onto accelerators of the same numbers, so that components that share an accelerator still do.
    """
    targets: dict[int, int] = {}
    stranded: set[str] = set()
    movable = {name for name in spare if not on_robots(plan.components[name])}
    taken: set[int] = set()
    for node in sorted(set(lost)):
        there = [name for name, part in plan.components.items() if node in part.nodes]
        moving = [name for name in there if name in movable]
        stranded.update(name for name in there if name in spare and name not in movable)
        if not moving:
            continue
        allowed = set.intersection(*(set(spare[name]) for name in moving)) - set(lost) - taken
        target = next((one for one in sorted(allowed) if _takes(plan, node, one, moving)), None)
        if target is None:
            stranded.update(moving)
        else:
            targets[node] = target
            taken.add(target)
    moved = {name: part for name, part in plan.components.items() if name in movable - stranded}
    moves, labels = [], set()
    for name, part in moved.items():
        for place in part.members:
            if (source := place.cluster_node_rank) in targets:
                move = Move(component=name, rank=place.rank, source=source, target=targets[source])
                moves.append(move)
                labels.add(place.node_group_label)
    if not moves:
        return Relocation(plan=plan, stranded=tuple(sorted(stranded)))
    components = {
        name: _moved(part, targets) if name in moved else part for name, part in plan.components.items()
    }
    groups = {
        label: _extended(group, targets) if label in labels else group
        for label, group in plan.inventory.groups.items()
    }
    inventory = replace(plan.inventory, groups=groups)
    new = replace(plan, components=components, inventory=inventory)
    return Relocation(plan=new, moves=tuple(moves), stranded=tuple(sorted(stranded)))


def _takes(plan: Plan, source: int, target: int, moving: Iterable[str]) -> bool:
    """Whether a spare node has the shape of the lost one, and its needed accelerators are unused."""
    nodes = plan.inventory.nodes
    if target >= len(nodes) or nodes[target].accelerators.count != nodes[source].accelerators.count:
        return False
    if nodes[target].accelerators.type != nodes[source].accelerators.type:
        return False
    needed: set[int] = set()
    for name in moving:
        part = plan.components[name]
        if target in part.nodes:  # the component's ranks on the target would get other local ranks
            return False
        needed.update(number for node, number in accelerators_of(part.members) if node == source)
    row = plan.nodes[target].accelerators
    return not any(row[number] for number in needed)


def _moved(part: ComponentPlan, targets: Mapping[int, int]) -> ComponentPlan:
    """The component with the spare nodes in place of the lost ones. Their shapes agree, so only node numbers change."""
    members = tuple(
        replace(place, cluster_node_rank=targets[place.cluster_node_rank])
        if place.cluster_node_rank in targets
        else place
        for place in part.members
    )
    return part if members == part.members else replace(part, members=members, rule="")


def _extended(group: NodeGroup, targets: Mapping[int, int]) -> NodeGroup:
    """The group with each spare node beside the lost one, and with its environment."""
    mine = {source: target for source, target in targets.items() if source in group.node_ranks}
    new = {target for target in mine.values() if target not in group.node_ranks}

    def with_new(ranks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({*ranks, *(mine[one] for one in ranks if mine.get(one) in new)}))

    environments = tuple(replace(env, node_ranks=with_new(env.node_ranks)) for env in group.environments)
    return replace(group, node_ranks=with_new(group.node_ranks), environments=environments)
