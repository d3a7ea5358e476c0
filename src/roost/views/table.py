"""The table of components: how many processes, what each holds, where they sit, with whom they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from roost.inventory.resources import ACCELERATOR
from roost.planning.plan import ComponentPlan, Plan
from roost.views.look import Look
from roost.views.seats import Seats

MAX_LINES = 4  # of the places of one component
MAX_NAMES = 4
MAX_WORDS = 12


@dataclass(frozen=True, slots=True)
class ComponentRow:
    name: str
    groups: str
    processes: str
    holds: str
    places: tuple[str, ...]
    share: str  # of each accelerator it holds
    shares_with: str


def components(plan: Plan, seats: Seats, look: Look, width: int, show_all: bool = False) -> RenderableType:
    """A table where it fits the width, with shares beside or below it, otherwise a paragraph for each."""
    shares = seats.shares(plan.shares)
    rows = [_row(plan, component, seats, shares, show_all) for component in plan.components.values()]
    charged = any(row.share not in ("", "1") for row in rows)
    console = Console(width=10_000, color_system=None)

    def fits(table: Table) -> bool:
        return Measurement.get(console, console.options, table).maximum <= width

    if fits(table := _table(rows, look, charged)):
        return table
    if charged and fits(table := _table(rows, look, False)):
        return Group(table, "", Text(_in_words(rows, show_all)))
    return _paragraphs(rows, look)


def _in_words(rows: Sequence[ComponentRow], show_all: bool) -> str:
    """The shares in a line, for a table that has no room for them."""
    found = [row for row in rows if row.share]
    if len({row.share for row in found}) == 1:
        return f"each is charged {found[0].share} of its accelerators"
    parts = [f"{row.name} {row.share}" for row in found]
    return f"charged of each accelerator: {', '.join(_bounded(parts, MAX_WORDS, show_all, '{} more'))}"


def _row(
    plan: Plan,
    component: ComponentPlan,
    seats: Seats,
    shares: dict[str, tuple[float, float]],
    show_all: bool,
) -> ComponentRow:
    return ComponentRow(
        name=component.name,
        groups=", ".join(component.node_groups) or "cluster",
        processes=f"{component.world_size:,}",
        holds=each_holds(plan, component),
        places=tuple(_bounded(list(places(component)), MAX_LINES, show_all, "... {} more")),
        share=_part(shares[component.name]) if component.name in shares else "",
        shares_with=", ".join(_bounded(seats.neighbours[component.name], MAX_NAMES, show_all, "{} more")),
    )


def _table(rows: Sequence[ComponentRow], look: Look, charged: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    grouped = any(row.groups != "cluster" for row in rows)
    sharing = any(row.shares_with for row in rows)
    table.add_column("")
    table.add_column("component")
    if grouped:
        table.add_column("group")
    table.add_column("processes", justify="right")
    table.add_column("each holds")
    table.add_column("ranks")
    if charged:
        table.add_column("share")
    if sharing:
        table.add_column("shares with")
    for row in rows:
        style = look.styles[row.name]
        cells = [Text(look.letters[row.name], style), Text(row.name, style)]
        if grouped:
            cells.append(Text(row.groups))
        cells += [Text(row.processes), Text(row.holds), Text("\n".join(row.places))]
        if charged:
            cells.append(Text(row.share))
        if sharing:
            cells.append(Text(row.shares_with))
        table.add_row(*cells)
    return table


def _paragraphs(rows: Sequence[ComponentRow], look: Look) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False, show_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        style = look.styles[row.name]
        through = "" if row.groups == "cluster" else f" on {row.groups}"
        holds = row.holds if " per " in row.holds else f"{row.holds} each"
        number = f"{row.processes} process{'es' * (row.processes != '1')}"
        head = Text.assemble((row.name, style), f": {number}{through}, {holds}")
        lines = [head, *(Text(f"  {place}") for place in row.places)]
        if row.shares_with:
            part = f", charged {row.share} of each" if row.share not in ("", "1") else ""
            lines.append(Text(f"  shares with {row.shares_with}{part}"))
        table.add_row(Text(look.letters[row.name], style), Text("\n").join(lines))
    return table


def _bounded(items: list[str], limit: int, show_all: bool, more: str) -> list[str]:
    if show_all or len(items) <= limit:
        return items
    return [*items[: limit - 1], more.format(len(items) - limit + 1)]


def each_holds(plan: Plan, component: ComponentPlan) -> str:
    """`2 accelerators`, `1 Franka`, or how many processes share one: `4 per accelerator`, `101 per node`."""
    groups = plan.inventory.groups
    sitting: Counter[tuple[int, str, int]] = Counter()
    widths, kinds = set(), set()
    for place in component.members:
        group = groups.get(place.node_group_label)
        held = place.hardware
        kinds.add(((group and group.hardware_type) or ACCELERATOR) if held else "node")
        widths.add(len(held) or 1)
        sitting[place.cluster_node_rank, place.node_group_label, held[0] if held else -1] += 1
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
    """`0-31 on nodes 0-3, 8 each`: process ranks by runs of nodes that hold equally many."""
    runs: list[list[int]] = []  # first node, last node, first rank, processes on each node
    for node, first, count in _by_node(component):
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


def _by_node(component: ComponentPlan) -> Iterator[tuple[int, int, int]]:
    """Node, first process rank and number of processes, for each stretch on one node."""
    node, first = -1, 0
    for place in component.members:
        if place.cluster_node_rank != node:
            if place.rank:
                yield node, first, place.rank - first
            node, first = place.cluster_node_rank, place.rank
    yield node, first, component.world_size - first
