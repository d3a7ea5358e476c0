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

from roost.planning.held import NOTHING_HELD, Unused
from roost.planning.plan import Plan
from roost.views.occupancy_masks import OccupancyMasks
from roost.views.rows import NodeRows, Row, bounded, left_out_note
from roost.views.style import KEEP, Fragments, Style

FEW_NODES = 8  # up to here cells show process ranks
MAX_ROWS = 24
MAX_RUNS = 24
_GAP = 2
_LEAST_BESIDE = 20  # the last column may be wrapped to this width


def node_map(
    plan: Plan,
    masks: OccupancyMasks,
    style: Style,
    width: int,
    show_all: bool = False,
    unused: Mapping[int, Unused] = NOTHING_HELD,
) -> tuple[Table, str]:
    """The map, and a note on the rows it leaves out."""
    found = NodeRows(plan, masks, style, FEW_NODES, unused)
    rows, grid = found.drawn(with_ranks=False), True
    if found.ranks:
        detailed = found.drawn(with_ranks=True)
        if _fits(detailed, width, _cell_width(detailed)):
            rows = detailed
    if not _fits(rows, width, _cell_width(rows)):
        grid = False
    shown, left_out = bounded(rows, None if show_all else MAX_ROWS)
    return _table(shown, style, grid), left_out_note(left_out)


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


def _table(rows: Sequence[Row | None], style: Style, grid: bool) -> Table:
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
            values.append(_grid(row, style, cell, wall) if grid else _runs(row, style))
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


def _runs(row: Row, style: Style) -> Text:
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
    return style.text(_joined(parts, "  "))
