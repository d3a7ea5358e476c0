"""The words around a map: a heading, the holders of accelerators, and a line that sums up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date

from roost.config.ranks import ranges
from roost.errors import counted
from roost.inventory.inventory import Inventory
from roost.planning.occupancy import is_shared
from roost.planning.plan import Plan
from roost.planning.preflight import Holder, Unused, untold_count
from roost.views.components import listed
from roost.views.style import printable

MAX_KINDS = 4  # kinds of nodes in a heading
MAX_HOLDERS = 8
MAX_SPANS = 4  # ranges of nodes of one holder


def heading(plan: Plan, job: str, day: date | None) -> str:
    """`job.yaml on 2 nodes x 8 (A800), 2026-11-17`; empty when neither job nor date is given."""
    if not job and day is None:
        return ""
    where = _cluster(plan.inventory)
    return (f"{job} on {where}" if job else where) + (f", {day.isoformat()}" if day else "")


def _cluster(inventory: Inventory) -> str:
    kinds = Counter(
        (node.accelerators.count, node.accelerators.model or node.accelerators.type)
        for node in inventory.nodes
    )
    parts = [
        counted(nodes, "node") + (f" x {count} ({model})" if count else " without accelerators")
        for (count, model), nodes in kinds.items()
    ]
    return ", ".join(listed(parts, MAX_KINDS, False, "{} more kinds of nodes"))


def held_lines(plan: Plan, holders: Sequence[Holder], show_all: bool = False) -> list[str]:
    """`held: node 0: 2-3 by job 'other'`, for each holder; `2 of 8` if the numbers are not known."""
    nodes = plan.inventory.nodes
    same: dict[tuple[str, str], list[int]] = {}
    for holder in holders:
        if holder.node < len(nodes):
            total = nodes[holder.node].accelerators.count
            count = f"{holder.count:g} of {total}"
            what = count if untold_count(holder) else ranges(holder.devices or ())
            same.setdefault((what, printable(holder.name)), []).append(holder.node)
    lines = []
    for (what, name), ranks in sorted(same.items(), key=lambda entry: entry[1]):
        spans = listed(ranges(ranks).split(","), MAX_SPANS, show_all, "{} more")
        lines.append(f"held: node{'s' * (len(ranks) > 1)} {', '.join(spans)}: {what} by {name}")
    return listed(lines, MAX_HOLDERS, show_all, "held: ... {} more")


def in_short(plan: Plan, unused: Mapping[int, Unused]) -> str:
    """`4 nodes, 32 accelerators: 28 used, 4 idle, 8 shared`, with `2 held by others` if others hold some."""
    nodes, total = counted(len(plan.nodes), "node"), plan.inventory.num_accelerators
    if not total:
        return f"{nodes}, no accelerators"
    used = total - plan.cells[()]
    shared = sum(count for uses, count in plan.cells.items() if is_shared(uses))
    held = sum(node.held_count for node in unused.values())
    others = f"{held:,} held by others, " if held else ""
    idle = total - used - held
    return f"{nodes}, {total:,} accelerators: {used:,} used, {others}{idle:,} idle, {shared:,} shared"
