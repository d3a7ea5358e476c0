"""A plan as one HTML page: the map, the components, the findings, and the place of every process.

The page needs no other file and loads nothing, so it can be attached to a review or a run. Its only script, which the
page allows by its hash, is the search.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from hashlib import sha256
from typing import Any

from roost.errors import Finding
from roost.planning.plan import Plan
from roost.planning.preflight import Holder, unused_by_node
from roost.views.captions import heading, held_lines, in_short
from roost.views.components import any_charged, columns, component_rows
from roost.views.drawing import fill_of, text
from roost.views.map_picture import map_picture
from roost.views.process_search import FIELD, SCRIPT, STYLE, holds, search_json, search_scripts
from roost.views.style import Style
from roost.views.svg import title_of

MAX_PROCESSES = 5_000  # up to here every process is listed; a longer page would be slow and unread
PAGE_STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1b1f24; --dim: #6b7280; --line: #d9dde3; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16191d; --ink: #e6e8eb; --dim: #9aa1ab; --line: #343a42; }
}
body { margin: 2rem; background: var(--page); color: var(--ink); font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.2rem; margin: 0 0 .2rem; }
h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
p { margin: 0; }
.map { overflow-x: auto; margin: 1rem -20px; }
table { border-collapse: collapse; }
th, td { padding: .25rem 1.2rem .25rem 0; text-align: left; vertical-align: top; white-space: pre-line; }
th { font-weight: normal; color: var(--dim); }
tr + tr td { border-top: 1px solid var(--line); }
td.number { text-align: right; }
.chip { display: inline-block; min-width: 1.4em; padding: 0 .3em; margin-right: .5em; border-radius: 3px;
  color: #1b1f24; text-align: center; font-family: ui-monospace, monospace; }
.finding { border-left: 4px solid #d9a400; padding: .2rem .8rem; margin: .6rem 0; }
.finding.error { border-color: #d03030; }
.dim, code { color: var(--dim); }
summary { cursor: pointer; }
"""


def page_head(title: str, *scripts: str, style: str = "", connects: bool = False) -> str:
    """The start of a page, up to its body. The page may load nothing, and run only these scripts.

    A page that `connects` may send requests to its server.
    """
    hashes = [f"'sha256-{b64encode(sha256(one.encode()).digest()).decode()}'" for one in scripts]
    allowed = f"; script-src {' '.join(hashes)}" if scripts else ""
    allowed += "; connect-src 'self'" if connects else ""
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'{allowed}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<style>{PAGE_STYLE}{style}</style>
</head>
"""


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    numbers: int | None = None,
    cell: Callable[[str], str] = text,
) -> str:
    """A table, or nothing without rows. Columns from `numbers` on are right-aligned; `cell` makes HTML of a cell."""
    lines = ["<tr>" + "".join(f"<th>{text(one)}</th>" for one in head) + "</tr>\n"] if head else []
    for row in rows:
        kinds = ("" if numbers is None or at < numbers else " class=number" for at in range(len(row)))
        cells = (f"<td{kind}>{cell(str(one))}</td>" for kind, one in zip(kinds, row, strict=True))
        lines.append(f"<tr>{''.join(cells)}</tr>\n")
    return f"<table>\n{''.join(lines)}</table>\n" if len(lines) > bool(head) else ""


def chip(style: Style, name: str) -> str:
    """The letter of a component on its colour, and its name."""
    colour, letter = fill_of(style.hues[name]), text(style.letters[name])
    return f'<span class="chip" style="background:{colour}">{letter}</span>{text(name)}'


def render_page(
    plan: Plan, *, show_all: bool = False, job: str = "", day: date | None = None, held: Sequence[Holder] = ()
) -> str:
    """`job` (the name of its file) and `day` make a heading. `held` are the programs that hold accelerators of the cluster."""
    style = Style.of(plan.components)
    unused = unused_by_node(plan, held) if held else {}
    named = heading(plan, job, day)
    title = named or title_of(plan)
    sums = in_short(plan, unused) + (f", {title_of(plan)}" if named else "")
    nodes = map_picture(plan, style, unused, held_lines(plan, held, show_all), show_all)
    parts = [
        page_head(title, SCRIPT, style=STYLE + "".join(_pointing(plan))),
        f"<body>\n<h1>{text(title)}</h1>\n<p>{text(sums)}</p>\n{FIELD}",
        f'<div class="map">\n{nodes.as_svg(title)}</div>\n',
        "<h2>Components</h2>\n",
        *_components(plan, style, show_all),
    ]
    if plan.findings:
        parts += ["<h2>To know</h2>\n", *map(_finding, plan.findings)]
    if plan.components:
        parts += ["<h2>Processes</h2>\n", *_processes(plan, show_all)]
    return "".join([*parts, search_scripts(search_json([plan]))]) + "</body>\n</html>\n"


def _pointing(plan: Plan) -> Iterator[str]:
    """Pointing at a component fades the others in the map."""
    for bit in range(len(plan.components)):
        yield f"body:has(tr.c{bit}:hover) .map .band:not(.c{bit}) {{ opacity: .15; }}\n"


def _components(plan: Plan, style: Style, show_all: bool) -> Iterator[str]:
    rows = component_rows(plan, show_all)
    if not rows:
        yield "<p>no component runs here</p>\n"
        return
    shown = columns(rows, any_charged(rows))
    yield "<table>\n<tr>" + "".join(f"<th>{heading}</th>" for heading, _ in shown) + "</tr>\n"
    for bit, row in enumerate(rows):
        cells = []
        for _, field in shown:
            words = chip(style, row.name) if field == "name" else "\n".join(map(text, row.lines(field)))
            number = ' class="number"' if field == "processes" else ""
            cells.append(f"<td{number}>{words}</td>")
        yield f'<tr class="c{bit}">{"".join(cells)}</tr>\n'
    yield "</table>\n"


def _finding(finding: Finding) -> str:
    reasons = {"why": finding.why, "help": finding.remedy}
    more = "".join(f"<br>{kind}: {text(words)}" for kind, words in reasons.items() if words)
    head = f"{finding.severity} <code>{finding.code}</code> {text(finding.what)}"
    return f'<div class="finding {finding.severity}">{head}<span class="dim">{more}</span></div>\n'


def _processes(plan: Plan, show_all: bool) -> Iterator[str]:
    count = sum(component.world_size for component in plan.components.values())
    if count > MAX_PROCESSES and not show_all:
        yield f'<p class="dim">{count:,} processes are too many for a page; --all lists them, --json too.</p>\n'
        return
    for component in plan.components.values():
        yield f"<details><summary>{text(component.name)}, {component.world_size:,}</summary>\n<table>\n"
        yield "<tr><th>rank</th><th>node</th><th>host</th><th>holds</th></tr>\n"
        for place in component.members:
            node = plan.inventory.nodes[place.cluster_node_rank]
            yield (
                f'<tr><td class="number">{place.rank}</td><td class="number">{node.rank}</td>'
                f"<td>{text(node.ip or node.hostname)}</td><td>{text(holds(place))}</td></tr>\n"
            )
        yield "</table>\n</details>\n"
