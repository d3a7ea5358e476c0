"""The map in a terminal: a row for each node, and a cell for each accelerator with the components on it.

Cells show process ranks if the terminal is wide enough, or else only letters. If letters do not fit side by side
either, equal cells are written as runs: `0-7 AR  8-15 I`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from roost.config.ranks import ranges
from roost.planning.plan import Plan
from roost.planning.preflight import Unused
from roost.views.rows import NodeRows, Row, bounded, map_note
from roost.views.style import KEEP, Fragments, Style

FEW_NODES = 8  # up to here cells show process ranks
MAX_ROWS = 24
MAX_RUNS = 24
_GAP = 2
_LEAST_BESIDE = 20  # the last column may be wrapped to this width


def node_map(
    plan: Plan, style: Style, width: int, unused: Mapping[int, Unused], show_all: bool = False
) -> tuple[Table, str]:
    """The map, and a note about rows that are left out or stand for several nodes."""
    found = NodeRows(plan, style, FEW_NODES, unused, show_all)
    rows = found.drawn(with_ranks=bool(found.ranks))
    if found.ranks and not show_all and not _fits(rows, width):
        rows = found.drawn(with_ranks=False)
    shown, left_out = bounded(rows, None if show_all else MAX_ROWS)
    table = _table(shown, style, _fits(rows, width), None if show_all else MAX_RUNS)
    return table, map_note(shown, left_out)


def _width(fragments: Fragments) -> int:
    return sum(cell_len(text) for text, _ in fragments)


def _cell_width(rows: Sequence[Row]) -> int:
    widest = max((_width(cell) for row in rows for cell in set(row.cells)), default=1)
    count = max((len(row.cells) for row in rows), default=0)
    return max(widest, len(str(count - 1)) if count else 1)


def _fits(rows: Sequence[Row], width: int) -> bool:
    count = max(len(row.cells) for row in rows)
    grid = max(count * (_cell_width(rows) + 1) - 1, len("accelerators"))
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


def _table(rows: Sequence[Row | None], style: Style, grid: bool, most_runs: int | None) -> Table:
    drawn = [row for row in rows if row is not None]
    cell = _cell_width(drawn)
    wall = style.wall if any((" ", "") in cell for row in drawn for cell in row.cells) else " "
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
            values.append(_grid(row, style, cell, wall) if grid else _runs(row, style, most_runs))
        if with_beside:
            values.append(style.text(_joined(row.beside)))
        table.add_row(*values)
    return table


def _header(rows: Sequence[Row], cell: int, wall: str) -> Text:
    count = max(len(row.cells) for row in rows)
    return Text(wall.join(str(index).ljust(cell) for index in range(count)))


def _grid(row: Row, style: Style, cell: int, wall: str) -> Text:
    cells = []
    for fragments in row.cells:
        text = style.text(fragments)
        text.append(" " * (cell - text.cell_len))
        cells.append(text)
    return Text.assemble((wall, "dim")).join(cells)


def _runs(row: Row, style: Style, most: int | None) -> Text:
    """Equal cells as one: `0-7 AR`. Cells with ranks are one if the same components are there: `0-7 A0-7`."""
    parts: list[Fragments] = []
    first = 0
    for _, run in groupby(range(len(row.cells)), key=lambda index: _alike(row, index)):
        numbers = list(run)
        last = numbers[-1]
        where = f"{first}-{last}" if last > first else str(first)
        parts.append(((f"{where}{KEEP}", ""), *_together(row, numbers, style)))
        first = last + 1
    left = len(parts) - most if most is not None else 0
    if left > 0:
        parts = [*parts[:most], ((f"and {left} more", ""),)]
    return style.text(_joined(parts, "  "))


def _alike(row: Row, index: int) -> object:
    return tuple(row.ranks[index]) if row.ranks and row.ranks[index] else row.cells[index]


def _together(row: Row, numbers: Sequence[int], style: Style) -> Fragments:
    if not row.ranks or not row.ranks[numbers[0]]:
        return row.cells[numbers[0]]
    pieces: list[tuple[str, str]] = []
    for name in row.ranks[numbers[0]]:
        ranks = {rank for number in numbers for rank in row.ranks[number][name]}
        pieces += [(KEEP, ""), (style.letters[name] + ranges(ranks), name)]
    return tuple(pieces[1:])
