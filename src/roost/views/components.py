"""The rows of a table of components: processes, what each process holds, nodes, and components that share devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from roost.planning.component_plan import ComponentPlan
from roost.planning.plan import Plan
from roost.planning.shares import charge

MAX_LINES = 4  # for the places of one component
MAX_NAMES = 4  # of components it shares with


@dataclass(frozen=True, slots=True)
class ComponentRow:
    name: str
    groups: str
    processes: str
    holds: str
    places: tuple[str, ...]
    share: str  # of each accelerator it holds
    shares_with: str

    def lines(self, field: str) -> tuple[str, ...]:
        value = getattr(self, field)
        return value if isinstance(value, tuple) else (value,)


def component_rows(plan: Plan, show_all: bool = False) -> list[ComponentRow]:
    shares, shares_with = share_ranges(plan), neighbours(plan)
    return [
        ComponentRow(
            name=name,
            groups=", ".join(component.node_groups) or "cluster",
            processes=f"{component.world_size:,}",
            holds=each_holds(component),
            places=(
                *listed(list(places(component)), MAX_LINES, show_all, "... {} more"),
                *_engines(component),
            ),
            share=_part(shares[name]) if name in shares else "",
            shares_with=", ".join(listed(shares_with[name], MAX_NAMES, show_all, "{} more")),
        )
        for name, component in plan.components.items()
    ]


def _engines(component: ComponentPlan) -> Iterator[str]:
    """Which processes belong together, where an engine has several."""
    if component.engines is not None and component.engines.processes > 1:
        yield f"every {component.engines.processes} ranks are an engine"


def neighbours(plan: Plan) -> dict[str, list[str]]:
    """For each component, the other components it shares a device with."""
    bits = {name: 1 << index for index, name in enumerate(plan.components)}
    met = dict.fromkeys(bits, 0)  # the components met so far as bits, because there may be many
    for uses in {*plan.cells, *(uses for place in plan.nodes for _, uses in place.hardware)}:
        present = sum(bits[use.component] for use in uses)
        for use in uses:
            met[use.component] |= present
    return {name: [other for other in bits if met[name] & bits[other] and other != name] for name in bits}


def share_ranges(plan: Plan) -> dict[str, tuple[float, float]]:
    """The least and the most share that each component has of an accelerator, if it holds any."""
    found: dict[str, tuple[float, float]] = {}
    for uses in plan.cells:
        for name, share in charge(uses, plan.shares).items():
            least, most = found.get(name, (share, share))
            found[name] = min(least, share), max(most, share)
    return found


def columns(rows: Sequence[ComponentRow], charged: bool) -> list[tuple[str, str]]:
    """The columns to show, as heading and field. `charged` adds the column of shares."""
    found = [("component", "name")]
    if any(row.groups != "cluster" for row in rows):
        found.append(("group", "groups"))
    found += [("processes", "processes"), ("each holds", "holds"), ("ranks", "places")]
    if charged:
        found.append(("share", "share"))
    if any(row.shares_with for row in rows):
        found.append(("shares with", "shares_with"))
    return found


def any_charged(rows: Iterable[ComponentRow]) -> bool:
    """Whether some component has only a part of an accelerator: then a table shows shares."""
    return any(row.share not in ("", "1") for row in rows)


def listed(items: list[str], limit: int, show_all: bool, more: str) -> list[str]:
    """At most `limit` items; if there are more, the last one says how many."""
    if show_all or len(items) <= limit:
        return items
    return [*items[: limit - 1], more.format(len(items) - limit + 1)]


def each_holds(component: ComponentPlan) -> str:
    """`2 accelerators`, `1 Franka`, or how many processes share one: `4 per accelerator`, `101 per node`."""
    members = component.members
    sitting = Counter(
        (place.cluster_node_rank, place.node_group_label, place.hardware[:1]) for place in members
    )
    widths = {len(place.hardware) or 1 for place in members}
    kinds = {place.kind for place in members}
    noun = kinds.pop() if len(kinds) == 1 else "resource"
    most = max(sitting.values())
    if most > 1:
        text = f"{_span(sitting.values())} per {noun}"
        return text if max(widths) == 1 else f"{_span(widths)} {noun}s, some shared"
    return f"{_span(widths)} {noun}{'s' * (max(widths) > 1)}"


def _part(share: tuple[float, float]) -> str:
    """`0.8`, or `0.2-1`."""
    least, most = share
    return f"{least:g}" if least == most else f"{least:g}-{most:g}"


def _span(numbers: Iterable[int]) -> str:
    found = set(numbers)
    return str(min(found)) if len(found) == 1 else f"{min(found)}-{max(found)}"


def places(component: ComponentPlan) -> Iterator[str]:
    """`0-31 on nodes 0-3, 8 each`: one line for neighbouring nodes with equally many processes."""
    runs: list[list[int]] = []  # first node, last node, first rank, processes on each node
    for node, held in groupby(component.members, key=lambda place: place.cluster_node_rank):
        ranks_here = [place.rank for place in held]
        first, count = ranks_here[0], len(ranks_here)
        if runs and runs[-1][1] == node - 1 and runs[-1][3] == count:
            runs[-1][1] = node
        else:
            runs.append([node, node, first, count])
    for first_node, last_node, first, count in runs:
        nodes = last_node - first_node + 1
        last = first + nodes * count - 1
        ranks = str(first) if first == last else f"{first}-{last}"
        if nodes == 1:
            yield f"{ranks} on node {first_node}"
        else:
            yield f"{ranks} on nodes {first_node}-{last_node}, {count} each"
