"""The rows of a map: one for each node, or one for several nodes that look the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from roost.config.ranks import ranges
from roost.inventory.resources import ACCELERATOR
from roost.placement.placement import Device
from roost.planning.held import Unused
from roost.planning.occupancy import Unit
from roost.planning.plan import Plan
from roost.views.occupancy_masks import NodeMasks, OccupancyMasks, ranks_on_devices
from roost.views.style import KEEP, Fragments, Style, printable

FEW_UNITS = 4  # up to here the robots of a node are listed one by one
_SPANS = 3  # ranges of nodes named in one row
_TAIL = 4  # rows at the end of a long map that are always drawn


Run = tuple[NodeMasks, NodeMasks]  # the first and the last of several neighbouring nodes


@dataclass(frozen=True, slots=True)
class Row:
    """One node, or several that look the same."""

    runs: tuple[Run, ...]
    cells: tuple[Fragments, ...]
    beside: tuple[Fragments, ...]  # what sits on the node besides its accelerators

    @property
    def first(self) -> NodeMasks:
        return self.runs[0][0]

    @property
    def last(self) -> NodeMasks:
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
    def host(self) -> str:
        node = self.first.node
        name = printable(node.ip or node.hostname)
        return f"{name}.." if name and self.last is not self.first else name

    @property
    def model(self) -> str:
        held = self.first.node.accelerators
        return printable(held.model or held.type) if held.count else "-"

    @property
    def appearance(self) -> object:
        """Rows of equal appearance can be drawn as one."""
        return self.cells, self.beside, self.model


class NodeRows:
    """The rows of a plan. Up to `few_nodes` nodes, cells can show process ranks.

    `unused` says of the accelerators without a component which ones others hold.
    """

    def __init__(
        self, plan: Plan, masks: OccupancyMasks, style: Style, few_nodes: int, unused: Mapping[int, Unused]
    ) -> None:
        self.masks, self.style, self.unused = masks, style, unused
        few = len(masks.nodes) <= few_nodes
        self.ranks = ranks_on_devices(plan) if few else {}
        types = {label: group.hardware_type for label, group in plan.inventory.groups.items()}
        kinds = [kind for kind in types.values() if kind]
        self.ambiguous = {kind for kind in kinds if kinds.count(kind) > 1}
        self._letters: dict[int, Fragments] = {}

    def drawn(self, with_ranks: bool) -> list[Row]:
        rows: list[Row] = []
        for masks in self.masks.nodes:
            cells = tuple(
                self._with_ranks(Device(masks.node.rank, ACCELERATOR, "", index))
                if with_ranks
                else self._in_letters(mask)
                for index, mask in enumerate(masks.accelerators)
            )
            cells = self._with_held(masks.node.rank, cells)
            row = Row(((masks, masks),), cells, self._beside(masks))
            if rows and rows[-1].appearance == row.appearance:
                row = Row(((rows.pop().first, masks),), cells, row.beside)
            rows.append(row)
        return rows

    def _in_letters(self, mask: int) -> Fragments:
        if mask not in self._letters:
            found = tuple((self.style.letters[name], name) for name in self.masks.names_in(mask))
            self._letters[mask] = found or ((self.style.idle, ""),)
        return self._letters[mask]

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

    def _beside(self, masks: NodeMasks) -> tuple[Fragments, ...]:
        found: list[Fragments] = []
        detailed = bool(self.ranks) and len(masks.hardware) <= FEW_UNITS
        if detailed:
            for unit, _ in masks.hardware:
                device = Device(masks.node.rank, unit.type, unit.group, unit.number)
                found.append(
                    ((f"{self._name(unit)}{KEEP}{unit.number}:{KEEP}", ""), *self._with_ranks(device))
                )
        else:
            for (name, mask), run in groupby(
                masks.hardware, key=lambda entry: (self._name(entry[0]), entry[1])
            ):
                numbers = ranges(unit.number for unit, _ in run)
                found.append(((f"{name}{KEEP}{numbers}:{KEEP}", ""), *self._in_letters(mask)))
        for bit, count in masks.bare:
            name = self.masks.names[bit]
            found.append(((name, name), (f"{KEEP}x{count}", "")))
        return tuple(found)

    def _name(self, unit: Unit) -> str:
        kind = printable(unit.type)
        return f"{unit.group}{KEEP}{kind}" if unit.type in self.ambiguous else kind


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
            Row(tuple(run for row in same for run in row.runs), same[0].cells, same[0].beside)
            for same in alike.values()
        ], []
    head = most - _TAIL
    return [*rows[:head], None, *rows[-_TAIL:]], rows[head:-_TAIL]


def left_out_note(left_out: list[Row]) -> str:
    if not left_out:
        return ""
    nodes = f"nodes {left_out[0].first.node.rank}-{left_out[-1].last.node.rank}"
    return f"{len(left_out)} rows left out ({nodes}); --all shows them"
