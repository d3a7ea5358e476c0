"""The map: a row for each node, a cell for each accelerator, and who sits there.

Nodes whose rows would look the same become one row. Cells show process ranks where that fits, else letters;
where not even letters fit side by side, they become runs such as `0-7 AR  8-15 I`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from roost.inventory.resources import ACCELERATOR
from roost.planning.checks import ranges
from roost.planning.plan import Device, Plan
from roost.views.look import KEEP, Fragments, Look, printable
from roost.views.seats import NodeSeats, Seats, Unit, ranks_on_devices

FEW_NODES = 8  # up to here process ranks are worth showing
FEW_UNITS = 4  # robots of a node listed one by one
MAX_ROWS = 24
_TAIL = 4  # of these rows, how many come from the end
MAX_RUNS = 24
_GAP = 2
_LEAST_BESIDE = 20  # the last column may wrap, down to this width


@dataclass(frozen=True, slots=True)
class Row:
    """One node, or several in a row that look the same."""

    first: NodeSeats
    last: NodeSeats
    cells: tuple[Fragments, ...]
    beside: tuple[Fragments, ...]  # what sits on the node besides its accelerators

    @property
    def nodes(self) -> str:
        first, last = self.first.node.rank, self.last.node.rank
        return str(first) if first == last else f"{first}-{last} x{last - first + 1}"

    @property
    def host(self) -> str:
        node = self.first.node
        name = printable(node.ip or node.hostname)
        return f"{name}.." if name and self.last is not self.first else name

    @property
    def model(self) -> str:
        held = self.first.node.accelerators
        return printable(held.model or held.type) if held.count else "-"


def node_map(plan: Plan, seats: Seats, look: Look, width: int, show_all: bool = False) -> tuple[Table, str]:
    """The map, and a note on what it leaves out."""
    drawing = _Drawing(plan, seats, look)
    rows, grid = drawing.rows(with_ranks=False), True
    if drawing.ranks:
        detailed = drawing.rows(with_ranks=True)
        if _fits(detailed, width, _cell_width(detailed)):
            rows = detailed
    if not _fits(rows, width, _cell_width(rows)):
        grid = False
    shown, left_out = _bounded(rows, show_all)
    table = _table(shown, look, grid)
    if not left_out:
        return table, ""
    nodes = f"nodes {left_out[0].first.node.rank}-{left_out[-1].last.node.rank}"
    return table, f"{len(left_out)} rows left out ({nodes}); --all shows them"


class _Drawing:
    def __init__(self, plan: Plan, seats: Seats, look: Look) -> None:
        self.seats, self.look = seats, look
        few = len(seats.nodes) <= FEW_NODES
        self.ranks = ranks_on_devices(plan) if few else {}
        types = {label: group.hardware_type for label, group in plan.inventory.groups.items()}
        kinds = [kind for kind in types.values() if kind]
        self.ambiguous = {kind for kind in kinds if kinds.count(kind) > 1}
        self._letters: dict[int, Fragments] = {}

    def rows(self, with_ranks: bool) -> list[Row]:
        rows: list[Row] = []
        for seats in self.seats.nodes:
            cells = tuple(
                self._with_ranks(Device(seats.node.rank, ACCELERATOR, "", index))
                if with_ranks
                else self._in_letters(mask)
                for index, mask in enumerate(seats.accelerators)
            )
            row = Row(seats, seats, cells, self._beside(seats))
            if rows and _alike(rows[-1], row):
                row = Row(rows.pop().first, seats, cells, row.beside)
            rows.append(row)
        return rows

    def _in_letters(self, mask: int) -> Fragments:
        if mask not in self._letters:
            found = tuple((self.look.letters[name], name) for name in self.seats.names_in(mask))
            self._letters[mask] = found or ((self.look.idle, ""),)
        return self._letters[mask]

    def _with_ranks(self, device: Device) -> Fragments:
        pieces: list[tuple[str, str]] = []
        for name, ranks in self.ranks.get(device, {}).items():
            pieces += [(" ", ""), (self.look.letters[name] + ranges(ranks), name)]
        return tuple(pieces[1:]) or ((self.look.idle, ""),)

    def _beside(self, seats: NodeSeats) -> tuple[Fragments, ...]:
        found: list[Fragments] = []
        detailed = bool(self.ranks) and len(seats.hardware) <= FEW_UNITS
        if detailed:
            for unit, _ in seats.hardware:
                device = Device(seats.node.rank, unit.type, unit.group, unit.number)
                found.append(
                    ((f"{self._name(unit)}{KEEP}{unit.number}:{KEEP}", ""), *self._with_ranks(device))
                )
        else:
            for (name, mask), run in groupby(
                seats.hardware, key=lambda entry: (self._name(entry[0]), entry[1])
            ):
                numbers = ranges(unit.number for unit, _ in run)
                found.append(((f"{name}{KEEP}{numbers}:{KEEP}", ""), *self._in_letters(mask)))
        for bit, count in seats.bare:
            name = self.seats.names[bit]
            found.append(((name, name), (f"{KEEP}x{count}", "")))
        return tuple(found)

    def _name(self, unit: Unit) -> str:
        kind = printable(unit.type)
        return f"{unit.group}{KEEP}{kind}" if unit.type in self.ambiguous else kind


def _alike(one: Row, other: Row) -> bool:
    return one.cells == other.cells and one.beside == other.beside and one.model == other.model


def _bounded(rows: list[Row], show_all: bool) -> tuple[list[Row | None], list[Row]]:
    """The rows to show, None where some are left out, and those."""
    if show_all or len(rows) <= MAX_ROWS:
        return list(rows), []
    head = MAX_ROWS - _TAIL
    return [*rows[:head], None, *rows[-_TAIL:]], rows[head:-_TAIL]


# -- drawing ---------------------------------------------------------------------------------------------


def _width(fragments: Fragments) -> int:
    return sum(cell_len(text) for text, _ in fragments)


def _cell_width(rows: Sequence[Row]) -> int:
    widest = max((_width(cell) for row in rows for cell in set(row.cells)), default=1)
    count = max((len(row.cells) for row in rows), default=0)
    return max(widest, len(str(count - 1)) if count else 1)


def _fits(rows: Sequence[Row], width: int, cell: int) -> bool:
    count = max(len(row.cells) for row in rows)
    grid = max(count * (cell + 1) - 1, len("accelerators"))
    columns = [
        max(len("node"), *(len(row.nodes) for row in rows)),
        max(cell_len(row.host) for row in rows),
        max(len("model"), *(cell_len(row.model) for row in rows)),
        grid,
        min(_LEAST_BESIDE, max(_width(_joined(row.beside)) for row in rows)),
    ]
    return sum(columns) + _GAP * (sum(1 for column in columns if column) - 1) <= width


def _joined(parts: Sequence[Fragments], between: str = ", ") -> Fragments:
    pieces: list[tuple[str, str]] = []
    for part in parts:
        pieces += [(between, ""), *part]
    return tuple(pieces[1:])


def _table(rows: Sequence[Row | None], look: Look, grid: bool) -> Table:
    drawn = [row for row in rows if row is not None]
    cell = _cell_width(drawn)
    wall = look.wall if any((" ", "") in cell for row in drawn for cell in row.cells) else " "
    with_host = any(row.host for row in drawn)
    with_beside = any(row.beside for row in drawn)
    with_cells = any(row.cells for row in drawn)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim", show_edge=False)
    table.add_column("node", no_wrap=True)
    if with_host:
        table.add_column("host", overflow="fold")
    if with_cells:
        table.add_column("model", overflow="fold")
        table.add_column(_header(drawn, cell, wall) if grid else "accelerators", no_wrap=grid)
    if with_beside:
        table.add_column("also here", overflow="fold")
    for row in rows:
        if row is None:
            table.add_row("...")
            continue
        values: list[Text] = [Text(row.nodes)]
        if with_host:
            values.append(Text(row.host))
        if with_cells:
            values.append(Text(row.model))
            values.append(_grid(row, look, cell, wall) if grid else _runs(row, look))
        if with_beside:
            values.append(look.text(_joined(row.beside)))
        table.add_row(*values)
    return table


def _header(rows: Sequence[Row], cell: int, wall: str) -> Text:
    count = max(len(row.cells) for row in rows)
    return Text(wall.join(str(index).ljust(cell) for index in range(count)))


def _grid(row: Row, look: Look, cell: int, wall: str) -> Text:
    cells = []
    for fragments in row.cells:
        text = look.text(fragments)
        text.append(" " * (cell - text.cell_len))
        cells.append(text)
    return Text.assemble((wall, "dim")).join(cells)


def _runs(row: Row, look: Look) -> Text:
    parts: list[Fragments] = []
    first = 0
    for fragments, run in groupby(row.cells):
        last = first + sum(1 for _ in run) - 1
        numbers = f"{first}-{last}" if last > first else str(first)
        parts.append(((f"{numbers}{KEEP}", ""), *fragments))
        first = last + 1
    left = len(parts) - MAX_RUNS
    if left > 0:
        parts = [*parts[:MAX_RUNS], ((f"and {left} more", ""),)]
    return look.text(_joined(parts, "  "))
