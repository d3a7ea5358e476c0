"""A plan as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.text import Text

from roost.planning.plan import Plan
from roost.planning.preflight import Holder, unused_by_node
from roost.views.captions import held_lines, in_short
from roost.views.coloured_findings import DEFAULT_WIDTH
from roost.views.map import node_map
from roost.views.style import KEEP, Style
from roost.views.table import component_table


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
    table = component_table(plan, style, width, show_all) if plan.components else nobody
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
