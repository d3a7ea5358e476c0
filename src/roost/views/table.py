"""The table of components in a terminal, or paragraphs where it is too narrow for one."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from roost.planning.plan import Plan
from roost.views.components import ComponentRow, any_charged, columns, component_rows, listed
from roost.views.look import Look
from roost.views.seats import Seats

MAX_WORDS = 12


def components(plan: Plan, seats: Seats, look: Look, width: int, show_all: bool = False) -> RenderableType:
    """A table where it fits the width, with shares beside or below it, otherwise a paragraph for each."""
    rows = component_rows(plan, seats, show_all)
    charged = any_charged(rows)
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
    return f"charged of each accelerator: {', '.join(listed(parts, MAX_WORDS, show_all, '{} more'))}"


def _table(rows: Sequence[ComponentRow], look: Look, charged: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    table.add_column("")
    shown = columns(rows, charged)
    for heading, field in shown:
        table.add_column(heading, justify="right" if field == "processes" else "left")
    for row in rows:
        style = look.styles[row.name]
        cells = [Text("\n".join(row.lines(field)), style if field == "name" else "") for _, field in shown]
        table.add_row(Text(look.letters[row.name], style), *cells)
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
