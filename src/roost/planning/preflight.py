"""The accelerators that other programs hold: whether those of a plan are free, and which others are idle."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import Literal

from roost.config.layout import Layout
from roost.config.ranks import ranges
from roost.errors import Finding
from roost.inventory.nodes import Node
from roost.planning.component_plan import by_node
from roost.planning.plan import Plan

State = Literal["idle", "held", "perhaps held"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A program that holds accelerators of a node. Their numbers are known only for jobs of roost."""

    name: str
    node: int
    count: float
    devices: frozenset[int] | None = None


def holders_by_node(holders: Iterable[Holder]) -> dict[int, list[Holder]]:
    found: dict[int, list[Holder]] = {}
    for holder in holders:
        found.setdefault(holder.node, []).append(holder)
    return found


def shortages(
    needs: Mapping[int, Collection[int]], nodes: Sequence[Node], holders: Iterable[Holder]
) -> list[Finding]:
    """For every node without enough free accelerators: which are missing, and their holders."""
    by_node = holders_by_node(holders)
    findings = []
    for rank in sorted(needs):
        wanted, node, there = set(needs[rank]), nodes[rank], by_node.get(rank, [])
        clashes = [
            f"{holder.name} holds {numbered(same)}"
            for holder in there
            if (same := wanted & (holder.devices or set()))
        ]
        total = node.accelerators.count
        free = total - sum(holder.count for holder in there)
        if clashes or len(wanted) > free:
            held = clashes or [f"{holder.name} holds {holder.count:g}" for holder in there]
            why = f"{len(wanted)} needed, {max(0, free):g} of {total} free"
            remedy = "place fewer accelerators there"
            if held:
                why += f"; {', '.join(held)}"
                remedy = "wait for the holder to end, or place the job on other accelerators"
            what = f"{node}: {numbered(wanted)} cannot be reserved"
            findings.append(Finding(code="RE107", what=what, why=why, remedy=remedy))
    return findings


def availability(
    plan: Plan, layout: Layout | None, holders: Sequence[Holder], there: Sequence[Node] | None = None
) -> list[Finding]:
    """Findings about the plan's accelerators that others hold. `there` are the cluster's nodes, if not as planned."""
    holders = [holder for holder in holders if holder.node < len(plan.inventory.nodes)]
    if not holders:
        return []
    pool = layout if layout is not None and layout.accelerators is None else None  # takes any free ones
    pooled = set(pool.components) if pool else set[str]()
    needs = by_node(
        (device.node, device.number)
        for device, uses in plan.occupancy.items()
        if not device.group and any(use.component not in pooled for use in uses)
    )
    held = {rank: needs[rank] for rank in {holder.node for holder in holders} & needs.keys()}
    findings = shortages(held, there or plan.inventory.nodes, holders)
    if pool is None or not pool.reserved:
        return findings
    nodes = [slot.node for slot in plan.inventory.resources(pool.node_group).slots]
    _, missing = first_free(pool.reserved, nodes, holders)
    beside = [holder for holder in holders if holder.node in {node.rank for node in nodes}]
    if missing or not beside:
        return findings + missing
    why = "; ".join(f"{plan.inventory.nodes[one.node]}: {one.name} holds {one.count:g}" for one in beside[:4])
    moved = Finding(
        code="RW204",
        what="others hold accelerators here, and the pool takes the first free ones: it may sit elsewhere than shown",
        why=why,
        remedy="name the accelerators in cluster.layout.accelerators, or wait for the holders to end",
        path=("cluster", "layout"),
    )
    return [*findings, moved]


def first_free(
    count: int,
    nodes: Sequence[Node],
    holders: Iterable[Holder],
    granted: Mapping[int, int] | None = None,
    whole_nodes: bool = False,
) -> tuple[dict[int, int], list[Finding]]:
    """How many accelerators to take on each node for `count` in all, or why there are not enough.

    `granted` is how many Ray would still grant on each node, if known: Ray counts tasks too, which are no holders.
    With `whole_nodes` only nodes that are wholly free count, and are taken as a whole.
    """
    by_node = holders_by_node(holders)
    counts: dict[int, int] = {}
    left, lines = count, []
    for node in nodes:
        there = by_node.get(node.rank, [])
        free = int(node.accelerators.count - sum(holder.count for holder in there))
        free = max(0, free if granted is None else min(free, granted.get(node.rank, 0)))
        usable = free if not whole_nodes or free == node.accelerators.count else 0
        if min(usable, left):
            counts[node.rank] = usable if whole_nodes else min(usable, left)
            left -= min(usable, left)
        held = "".join(f", {holder.name} holds {holder.count:g}" for holder in there)
        lines.append(f"{node}: {free} of {node.accelerators.count} free{held}")
    if not left:
        return counts, []
    more = f"; {len(lines) - 8} more nodes" if len(lines) > 8 else ""
    return counts, [
        Finding(
            code="RE107",
            what=f"{count} accelerators cannot be reserved, {count - left} are free",
            why="; ".join(lines[:8]) + more,
            remedy="wait for the holders to end, or ask for fewer",
        )
    ]


def numbered(devices: Collection[int]) -> str:
    return f"accelerator{'s' * (len(devices) > 1)} {ranges(devices)}"


# -- taking accelerators from Ray ---------------------------------------------------------------------------


def runs(
    wanted: Collection[int], free: Iterable[int], spare: int | None = None
) -> list[tuple[bool, tuple[int, ...]]]:
    """The free devices up to the last wanted one, cut into runs of wanted and unwanted.

    Ray grants a node's lowest free numbers first. Taking the runs in turn, and giving the unwanted ones
    back afterwards, therefore yields exactly the wanted ones. A holder of unknown numbers may have
    some that seem free: `spare` limits how many unwanted ones are taken, so that the wanted ones still fit.
    """
    last = max(wanted, default=-1)
    relevant = [device for device in sorted(free) if device <= last]
    unwanted = [device for device in relevant if device not in set(wanted)]
    surplus = 0 if spare is None else max(0, len(unwanted) - max(0, spare))
    relevant = [device for device in relevant if device not in set(unwanted[:surplus])]
    return [
        (is_wanted, tuple(members))
        for is_wanted, members in groupby(relevant, key=lambda device: device in set(wanted))
    ]


def match(planned: Iterable[int], granted: Iterable[str], names: Sequence[str]) -> dict[int, str]:
    """The granted name for each planned device: its own if that was granted, else the next in order."""
    spare = sorted(granted, key=lambda name: (names.index(name) if name in names else len(names), name))
    matched = {}
    for device in sorted(planned):
        if device < len(names) and names[device] in spare:
            matched[device] = names[device]
            spare.remove(names[device])
    for device in sorted(set(planned) - set(matched)):
        matched[device] = spare.pop(0)
    return matched


# -- the accelerators that a plan does not use ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Unused:
    """The accelerators of one node that no component of a plan uses."""

    held: Mapping[int, tuple[str, ...]]  # number to the names of its holders
    others: tuple[int, ...]  # `idle` of these are free; it may be unknown which ones
    idle: int

    @property
    def held_count(self) -> int:
        return len(self.held) + len(self.others) - self.idle

    @property
    def idle_numbers(self) -> str:
        """`4-7`, or `2 of 4-7` if it is unknown which ones."""
        numbers = ranges(self.others)
        return numbers if self.idle == len(self.others) else f"{self.idle} of {numbers}"

    def state_of(self, number: int) -> State | None:
        """The state of an accelerator; None if a component uses it."""
        if number in self.held:
            return "held"
        if number not in self.others:
            return None
        return "idle" if self.idle == len(self.others) else "perhaps held"


def unused_by_node(plan: Plan, holders: Sequence[Holder]) -> dict[int, Unused]:
    """The unused accelerators of each node that has any."""
    there = holders_by_node(holders)
    unused = by_node((device.node, device.number) for device in plan.idle)
    return {node: _unused(sorted(numbers), there.get(node, ())) for node, numbers in unused.items()}


def _unused(numbers: Sequence[int], holders: Sequence[Holder]) -> Unused:
    held: dict[int, tuple[str, ...]] = {}
    for number in numbers if holders else ():
        if names := tuple(holder.name for holder in holders if number in (holder.devices or ())):
            held[number] = names
    others = tuple(number for number in numbers if number not in held)
    untold = {holder.name: untold_count(holder) for holder in holders if untold_count(holder)}
    idle = max(0, len(others) - ceil(sum(untold.values())))
    if not idle:
        held |= dict.fromkeys(others, tuple(untold))
        others = ()
    return Unused(held=held, others=others, idle=idle)


def untold_count(holder: Holder) -> float:
    """How many accelerators of a holder have unknown numbers."""
    return max(0, holder.count - len(holder.devices or ()))
