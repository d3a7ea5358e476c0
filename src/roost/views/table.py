"""The components in a terminal: a table, or a paragraph for each where the terminal is too narrow."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from roost.planning.plan import Plan
from roost.views.components import ComponentRow, any_charged, columns, component_rows, listed
from roost.views.style import Style

MAX_SHARES = 12  # components named in the line of shares


def component_table(plan: Plan, style: Style, width: int, show_all: bool = False) -> RenderableType:
    """A table with a column of shares; where that is too wide, the shares below it; or else paragraphs."""
    rows = component_rows(plan, show_all)
    charged = any_charged(rows)
    console = Console(width=10_000, color_system=None)

    def fits(table: Table) -> bool:
        return Measurement.get(console, console.options, table).maximum <= width

    if fits(table := _table(rows, style, charged)):
        return table
    if charged and fits(table := _table(rows, style, False)):
        return Group(table, "", Text(_in_words(rows, show_all)))
    return _paragraphs(rows, style)


def _in_words(rows: Sequence[ComponentRow], show_all: bool) -> str:
    """The shares as one line, for a table without room for a column of them."""
    found = [row for row in rows if row.share]
    if len({row.share for row in found}) == 1:
        return f"each is charged {found[0].share} of its accelerators"
    parts = [f"{row.name} {row.share}" for row in found]
    return f"charged of each accelerator: {', '.join(listed(parts, MAX_SHARES, show_all, '{} more'))}"


def _table(rows: Sequence[ComponentRow], style: Style, charged: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    table.add_column("")
    shown = columns(rows, charged)
    for heading, field in shown:
        table.add_column(heading, justify="right" if field == "processes" else "left")
    for row in rows:
        colour = style.colours[row.name]
        cells = [Text("\n".join(row.lines(field)), colour if field == "name" else "") for _, field in shown]
        table.add_row(Text(style.letters[row.name], colour), *cells)
    return table


def _paragraphs(rows: Sequence[ComponentRow], style: Style) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False, show_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        colour = style.colours[row.name]
        through = "" if row.groups == "cluster" else f" on {row.groups}"
        holds = row.holds if " per " in row.holds else f"{row.holds} each"
        number = f"{row.processes} process{'es' * (row.processes != '1')}"
        head = Text.assemble((row.name, colour), f": {number}{through}, {holds}")
        lines = [head, *(Text(f"  {place}") for place in row.places)]
        if row.shares_with:
            part = f", charged {row.share} of each" if row.share not in ("", "1") else ""
            lines.append(Text(f"  shares with {row.shares_with}{part}"))
        table.add_row(Text(style.letters[row.name], colour), Text("\n").join(lines))
    return table
