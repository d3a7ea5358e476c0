"""The rows of a map: one for each node, or one for several nodes that look the same."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from roost.config.ranks import ranges
from roost.inventory.resources import ACCELERATOR, BARE_NODE
from roost.placement.placement import Device
from roost.planning.occupancy import NodeOccupancy, Uses
from roost.planning.plan import Plan
from roost.planning.preflight import Unused
from roost.views.style import KEEP, Fragments, Style, printable

FEW_UNITS = 4  # up to here the robots of a node are listed one by one
_SPANS = 3  # ranges of nodes named in one row
_TAIL = 4  # rows at the end of a long map that are always drawn

Run = tuple[NodeOccupancy, NodeOccupancy]  # the first and the last of several neighbouring nodes
CellRanks = Mapping[str, Sequence[int]]  # the process ranks on one accelerator, by component
# For each accelerator but the last: the components with a process or engine that is also on the next accelerator.
Joins = tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One node, or several that look the same."""

    runs: tuple[Run, ...]
    cells: tuple[Fragments, ...]
    beside: tuple[Fragments, ...]  # the node's other hardware, and the processes on the node itself
    ranks: tuple[CellRanks, ...] = ()  # of the cells, if these show process ranks
    joins: Joins = ()

    @property
    def first(self) -> NodeOccupancy:
        return self.runs[0][0]

    @property
    def last(self) -> NodeOccupancy:
        return self.runs[-1][1]

    @property
    def nodes(self) -> str:
        """`3`, `0-7 x8`, or `0,2,4.. x200`."""
        spans = [(first.node.rank, last.node.rank) for first, last in self.runs]
        count = sum(last - first + 1 for first, last in spans)
        words = [str(first) if first == last else f"{first}-{last}" for first, last in spans[:_SPANS]]
        text = ",".join(words) + ".." * (len(spans) > _SPANS)
        return text if count == 1 else f"{text} x{count}"

    @property
    def node_ranks(self) -> Iterator[int]:
        return (rank for first, last in self.runs for rank in range(first.node.rank, last.node.rank + 1))

    @property
    def host(self) -> str:
        node = self.first.node
        name = printable(node.ip or node.hostname)
        return f"{name}.." if name and self.is_folded else name

    @property
    def model(self) -> str:
        held = self.first.node.accelerators
        return printable(held.model or held.type) if held.count else "-"

    @property
    def appearance(self) -> object:
        """Rows of equal appearance can be drawn as one."""
        return self.cells, self.beside, self.model, self.joins

    @property
    def is_folded(self) -> bool:
        return self.last is not self.first


class NodeRows:
    """The rows of a plan. With up to `few_nodes` nodes, or with `show_all`, cells can show process ranks.

    `unused` are the accelerators without a component, and their holders. Nodes in `apart` have rows of their own, with
    process ranks.
    """

    def __init__(
        self,
        plan: Plan,
        style: Style,
        few_nodes: int,
        unused: Mapping[int, Unused],
        show_all: bool = False,
        joins: Mapping[int, Joins] | None = None,
        apart: Collection[int] = (),
    ) -> None:
        self.nodes, self.style, self.unused, self.show_all = plan.nodes, style, unused, show_all
        self.joins: Mapping[int, Joins] = joins or {}
        self.apart = apart
        whole = show_all or len(plan.nodes) <= few_nodes
        self.ranks = ranks_on_devices(plan, None if whole else apart) if whole or apart else {}
        self._all_ranks = whole
        self.bare_ranks = _ranks_on_nodes(plan) if show_all else {}
        types = {label: group.hardware_type for label, group in plan.inventory.groups.items()}
        kinds = [kind for kind in types.values() if kind]
        self.ambiguous = {kind for kind in kinds if kinds.count(kind) > 1}
        self._lettered: dict[int, tuple[Fragments, ...]] = {}  # by the identity of a row, which nodes share

    def drawn(self, with_ranks: bool) -> list[Row]:
        """A row for each node. Without `show_all`, neighbours that look the same share a row."""
        rows: list[Row] = []
        for place in self.nodes:
            rank, row = place.node.rank, place.accelerators
            ranks: tuple[CellRanks, ...] = ()
            if with_ranks and (self._all_ranks or rank in self.apart):
                devices = [Device(rank, ACCELERATOR, "", index) for index in range(len(row))]
                cells = tuple(map(self._with_ranks, devices))
                ranks = tuple(self.ranks.get(device, {}) for device in devices)
            else:
                if id(row) not in self._lettered:
                    self._lettered[id(row)] = tuple(map(self._in_letters, row))
                cells = self._lettered[id(row)]
            drawn = Row(
                ((place, place),),
                self._with_held(rank, cells),
                self._beside(place),
                ranks,
                self.joins.get(rank, ()),
            )
            if (
                not self.show_all
                and rows
                and rank not in self.apart
                and rows[-1].first.node.rank not in self.apart
                and rows[-1].appearance == drawn.appearance
            ):
                drawn = replace(drawn, runs=((rows.pop().first, place),))
            rows.append(drawn)
        return rows

    def _in_letters(self, uses: Uses) -> Fragments:
        found = tuple((self.style.letters[use.component], use.component) for use in uses)
        return found or ((self.style.idle, ""),)

    def _with_ranks(self, device: Device) -> Fragments:
        pieces: list[tuple[str, str]] = []
        for name, ranks in self.ranks.get(device, {}).items():
            pieces += [(" ", ""), (self.style.letters[name] + ranges(ranks), name)]
        return tuple(pieces[1:]) or ((self.style.idle, ""),)

    def _with_held(self, node: int, cells: tuple[Fragments, ...]) -> tuple[Fragments, ...]:
        if node not in self.unused:
            return cells
        return tuple(
            ((self.style.unused[state], ""),) if (state := self.unused[node].state_of(number)) else cell
            for number, cell in enumerate(cells)
        )

    def _beside(self, place: NodeOccupancy) -> tuple[Fragments, ...]:
        found: list[Fragments] = []
        with_ranks = self._all_ranks or place.node.rank in self.apart
        if self.ranks and with_ranks and (self.show_all or len(place.hardware) <= FEW_UNITS):
            for device, _ in place.hardware:
                name = f"{self._name(device)}{KEEP}{device.number}:{KEEP}"
                found.append(((name, ""), *self._with_ranks(device)))
        else:
            for (name, letters), run in groupby(
                place.hardware, key=lambda entry: (self._name(entry[0]), self._in_letters(entry[1]))
            ):
                numbers = ranges(device.number for device, _ in run)
                found.append(((f"{name}{KEEP}{numbers}:{KEEP}", ""), *letters))
        for name, count in place.bare:
            ranks = self.bare_ranks.get((place.node.rank, name))
            which = f":{KEEP}{ranges(ranks)}" if ranks else ""
            found.append(((name, name), (f"{KEEP}x{count}{which}", "")))
        return tuple(found)

    def _name(self, device: Device) -> str:
        kind = printable(device.kind)
        return f"{device.group}{KEEP}{kind}" if device.kind in self.ambiguous else kind


def ranks_on_devices(plan: Plan, nodes: Collection[int] | None = None) -> dict[Device, dict[str, list[int]]]:
    """The process ranks on every device, or on the devices of some nodes. For few nodes: it has an entry per device."""
    found: dict[Device, dict[str, list[int]]] = {}
    for name, component in plan.components.items():
        for place in component.members:
            if nodes is not None and place.cluster_node_rank not in nodes:
                continue
            for device in place.devices:
                found.setdefault(device, {}).setdefault(name, []).append(place.rank)
    return found


def _ranks_on_nodes(plan: Plan) -> dict[tuple[int, str], list[int]]:
    """The ranks of the processes that hold nothing but their node, by node and component."""
    found: dict[tuple[int, str], list[int]] = {}
    for name, component in plan.components.items():
        for place in component.members:
            if place.kind == BARE_NODE:
                found.setdefault((place.cluster_node_rank, name), []).append(place.rank)
    return found


def engine_joins(plan: Plan) -> dict[int, Joins]:
    """For each node where a process or an engine holds neighbouring accelerators: which are held together."""
    holders: dict[int, dict[tuple[int, str], set[int]]] = {}
    for name, component in plan.components.items():
        each = 1 if component.engines is None else component.engines.processes
        if each == 1 and all(len(place.hardware) < 2 for place in component.members):
            continue
        for place in component.members:
            if place.kind == ACCELERATOR:
                on_node = holders.setdefault(place.cluster_node_rank, {})
                for number in place.hardware:
                    on_node.setdefault((number, name), set()).add(place.rank // each)
    joins: dict[int, Joins] = {}
    for node, held in holders.items():
        count, names = plan.inventory.nodes[node].accelerators.count, {name for _, name in held}
        joins[node] = tuple(
            frozenset(
                name
                for name in names
                if (number, name) in held and held[number, name] == held.get((number + 1, name))
            )
            for number in range(count - 1)
        )
    return joins


def bounded(rows: list[Row], most: int | None) -> tuple[list[Row | None], list[Row]]:
    """At most `most` rows to draw, with None in the place of the rows left out, and the rows left out.

    Too many rows are first reduced by drawing nodes that look the same as one row, even when they are not neighbours.
    """
    if most is None or len(rows) <= most:
        return list(rows), []
    alike: dict[object, list[Row]] = {}
    for row in rows:
        alike.setdefault(row.appearance, []).append(row)
    if len(alike) <= most:
        return [
            replace(same[0], runs=tuple(run for row in same for run in row.runs)) for same in alike.values()
        ], []
    head = most - _TAIL
    return [*rows[:head], None, *rows[-_TAIL:]], rows[head:-_TAIL]


def map_note(shown: Sequence[Row | None], left_out: Sequence[Row]) -> str:
    """A note about rows that are left out or stand for several nodes, and how to see each node."""
    if left_out:
        nodes = f"nodes {left_out[0].first.node.rank}-{left_out[-1].last.node.rank}"
        return f"{len(left_out)} rows left out ({nodes}); --all shows them"
    if any(row is not None and row.is_folded for row in shown):
        return "nodes that look the same share a row; --all shows each, with process ranks"
    return ""
