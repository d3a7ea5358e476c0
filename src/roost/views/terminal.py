"""A plan, and findings, as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.text import Text

from roost.errors import Finding, render
from roost.planning.plan import Plan
from roost.views.look import KEEP, Look
from roost.views.map import node_map
from roost.views.seats import Seats, seats
from roost.views.table import components

DEFAULT_WIDTH = 100  # where there is no terminal to ask


def render_plan(
    plan: Plan,
    *,
    width: int = DEFAULT_WIDTH,
    colour: bool = False,
    ascii_only: bool = False,
    show_all: bool = False,
) -> str:
    """The map, the components, and a line that sums up."""
    seated = seats(plan)
    look = Look.of(plan.components, ascii_only)
    nodes, note = node_map(plan, seated, look, width, show_all)
    parts: list[RenderableType] = [nodes]
    if note:
        parts.append(Text(note, "dim"))
    nobody = Text("no component runs here")  # a layout may reserve nothing
    table = components(plan, seated, look, width, show_all) if plan.components else nobody
    parts += ["", table, "", _summary(plan, seated)]
    return _draw(parts, width, colour)


def _summary(plan: Plan, seated: Seats) -> Text:
    return Text.assemble(seated.in_short, (f"  plan {plan.short_digest}", "dim"))


def render_findings(findings: Sequence[Finding], *, colour: bool = False) -> str:
    """The text of `roost.errors.render`, which words everything, with colour on top."""
    text = render(findings)
    if not colour:
        return text + "\n"
    styled = Text(text)
    styled.highlight_regex(r"(?m)^error\[\w+\]", "bold red")
    styled.highlight_regex(r"(?m)^warning\[\w+\]", "bold yellow")
    styled.highlight_regex(r"(?m)^ +\d* \|", "blue")
    styled.highlight_regex(r"(?m)(?<=\| ) *\^+$", "bold red")
    styled.highlight_regex(r"(?m)^  --> .*$", "dim")
    styled.highlight_regex(r"(?m)^  = \w+:", "bold")
    return _draw([styled], 1_000_000, colour)


def _draw(parts: Sequence[RenderableType], width: int, colour: bool) -> str:
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
    # Rows are padded to the table's width; nobody wants that in a file.
    return text if colour else "\n".join(line.rstrip() for line in text.split("\n"))
