"""A plan as a picture: the map and the components as one SVG, with no script and nothing to load."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from rich.cells import cell_len

from roost.planning.plan import Plan
from roost.planning.preflight import Holder, unused_by_node
from roost.views.captions import heading, held_lines, in_short
from roost.views.components import ComponentRow, any_charged, columns, component_rows
from roost.views.drawing import BAND, GAP, LINE, MARGIN, Picture, band, column, wide, words, wrapped
from roost.views.map_picture import looks, map_picture
from roost.views.style import Style


def render_svg(
    plan: Plan, *, show_all: bool = False, job: str = "", day: date | None = None, held: Sequence[Holder] = ()
) -> str:
    """The map, the components, a line that sums up, and the findings.

    `job` (the name of its file) and `day` make a heading. `held` are the programs that hold accelerators of the cluster.
    """
    style = Style.of(plan.components)
    unused = unused_by_node(plan, held) if held else {}
    nodes = map_picture(plan, style, unused, held_lines(plan, held, show_all), show_all)
    table = _table_picture(component_rows(plan, show_all), style, nodes.height + GAP)
    lines = [f"{in_short(plan, unused)}  plan {plan.short_digest}"]
    for one in plan.findings:
        lines += wrapped(f"{one.severity}[{one.code}]: {one.what}")
    top = table.height + GAP
    sentences = "".join(words(MARGIN, top + index * LINE, line) for index, line in enumerate(lines))
    width = max(nodes.width, table.width, 2 * MARGIN + wide(max(lines, key=cell_len)))
    drawn = Picture(width, top + len(lines) * LINE + MARGIN, nodes.body + table.body + sentences)
    title = heading(plan, job, day)
    drawn = drawn.with_heading(wrapped(title)) if title else drawn
    page = f'<rect class="page" width="{drawn.width:g}" height="{drawn.height:g}" fill="#ffffff"/>\n'
    return Picture(drawn.width, drawn.height, page + drawn.body).as_svg(title or title_of(plan))


def title_of(plan: Plan) -> str:
    return f"roost plan {plan.short_digest}"


def _table_picture(rows: Sequence[ComponentRow], style: Style, y: float) -> Picture:
    if not rows:
        return Picture(0, y + LINE, words(MARGIN, y, "no component runs here"))
    x, parts = MARGIN + 34.0, []
    tops = [y + LINE + 4]
    for row in rows:
        tops.append(tops[-1] + len(row.places) * (LINE + 2))
    for row, top in zip(rows, tops, strict=False):
        parts.append(band(looks(style)[row.name], style.letters[row.name], MARGIN, top, 24, BAND))
    for head, field in columns(rows, any_charged(rows)):
        lines = [row.lines(field) for row in rows]
        parts.append(words(x, y, head, "dim"))
        for cell, top in zip(lines, tops, strict=False):
            parts += [words(x, top + index * (LINE + 2), line) for index, line in enumerate(cell)]
        x += column(head, [line for cell in lines for line in cell])
    return Picture(x, tops[-1], "".join(parts))
