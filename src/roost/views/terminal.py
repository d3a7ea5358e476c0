"""A plan as text for a terminal. The components are a table, or paragraphs where the terminal is too narrow."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from roost.planning.plan import Plan
from roost.planning.preflight import Holder, unused_by_node
from roost.views.captions import held_lines, in_short
from roost.views.coloured_findings import DEFAULT_WIDTH
from roost.views.components import ComponentRow, any_charged, columns, component_rows, listed
from roost.views.map import node_map
from roost.views.style import KEEP, Style

MAX_SHARES = 12  # components named in the line of shares


def render_plan(
    plan: Plan,
    *,
    width: int = DEFAULT_WIDTH,
    colour: bool = False,
    ascii_only: bool = False,
    show_all: bool = False,
    held: Sequence[Holder] = (),
) -> str:
    """The map, the components, and a line that sums up. `held` are the programs that hold accelerators of the cluster."""
    unused = unused_by_node(plan, held) if held else {}
    style = Style.of(plan.components, ascii_only)
    nodes, note = node_map(plan, style, width, unused, show_all)
    parts: list[RenderableType] = [nodes]
    if note:
        parts.append(Text(note, "dim"))
    parts += [Text(line) for line in held_lines(plan, held, show_all)]
    nobody = Text("no component runs here")  # a layout may reserve nothing
    table = _component_table(plan, style, width, show_all) if plan.components else nobody
    parts += ["", table, "", Text.assemble(in_short(plan, unused), (f"  plan {plan.short_digest}", "dim"))]
    return drawn_text(parts, width, colour)


def drawn_text(parts: Sequence[RenderableType], width: int, colour: bool) -> str:
    """The parts one below the other."""
    page = StringIO()
    console = Console(
        file=page,
        width=width,
        force_terminal=colour,
        color_system="auto" if colour else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )
    for part in parts:
        console.print(part)
    text = page.getvalue().replace(KEEP, " ")
    # Rich pads rows to the table's width; in a file that would be trailing spaces.
    return text if colour else "\n".join(line.rstrip() for line in text.split("\n"))


def _component_table(plan: Plan, style: Style, width: int, show_all: bool) -> RenderableType:
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
