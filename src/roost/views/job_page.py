"""A running job as a page that changes: its map with states, calls in flight, use of accelerators, and events.

The page is one file that loads nothing. Its server keeps sending the parts that have changed, as HTML; the page's
script only puts them in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import quote

from roost.config.ranks import ranges
from roost.engine.job_snapshot import JobSnapshot
from roost.engine.status import ProcessStatus
from roost.engine.workers.call_summary import COLUMNS, STEP
from roost.planning.plan import Plan
from roost.views.drawing import text
from roost.views.job_words import (
    BAD,
    CHANNEL_HEADS,
    JOB_HEADS,
    NODE_HEADS,
    PROCESS_HEADS,
    STATES,
    channel_cells,
    component_lines,
    driver_words,
    headline,
    job_cells,
    job_style,
    node_cells,
    node_words,
    process_cells,
)
from roost.views.map_picture import MapStates, map_picture
from roost.views.page import chip, page_head, table
from roost.views.process_search import FIELD, search_json, search_scripts
from roost.views.process_search import SCRIPT as SEARCH_SCRIPT
from roost.views.process_search import STYLE as SEARCH_STYLE
from roost.views.style import Style
from roost.views.use_lanes import UseLane, lanes_picture

MOST_PROCESSES = 200  # rows; with more processes, only those that are not well
MOST_NODES = 64  # rows
MOST_EVENTS = 50
MOST_LANES = 64  # of single accelerators
MOST_NODE_LANES = 32  # of nodes, if there are more accelerators than that
_SECTIONS = {
    "components": "Components",
    "use": "Use of each accelerator",
    "processes": "Processes",
    "channels": "Channels",
    "nodes": "Nodes",
    "events": "Events",
}
STYLE = """
.is-idle > rect { opacity: .35; }
.is-not-started > rect, .is-ended > rect { fill: none; stroke: #9aa1ab; stroke-dasharray: 2 2; }
.is-not-started > text, .is-ended > text { fill: #6b7280 !important; }
.is-dead > rect, .is-hung > rect, .is-stopped > rect, .is-unknown > rect { fill: #d03030; stroke: #d03030; stroke-width: 2; }
.is-unknown > rect { fill: none; stroke-dasharray: 4 2; }
.is-dead > text, .is-hung > text, .is-stopped > text { fill: #ffffff !important; font-weight: bold; }
.is-dead > text { text-decoration: line-through; }
.row.is-gone > text, .row.is-silent > text { fill: #d03030 !important; font-weight: bold; }
.state { white-space: nowrap; }
.state::before { margin-right: .35em; }
.state.busy::before, .state.up::before, .state.running::before { content: "\\25CF"; color: #2f9e44; }
.state.idle::before { content: "\\25CB"; }
.state.bad { color: #d03030; font-weight: bold; }
.state.bad::before { content: "\\25B2"; }
@media (prefers-color-scheme: dark) {
  .state.bad { color: #ff8080; }
  .roost .band.is-idle > text, .roost .band.is-unknown > text { fill: #e6e8eb; }
  .row.is-gone > text, .row.is-silent > text { fill: #ff8080 !important; }
  a { color: #8ab4f8; }
}
#head { margin: .6rem 0; }
#connection:not(:empty) { background: #d03030; color: #ffffff; padding: .3rem .8rem; position: sticky; top: 0; }
td.call { min-width: 16em; }
section:empty, section:has(> div:empty) { display: none; }
"""
SCRIPT = """
const said = document.getElementById("connection");
const source = new EventSource(document.body.dataset.events);
source.onmessage = message => {
  said.textContent = "";
  const parts = JSON.parse(message.data), field = document.getElementById("search");
  for (const [name, html] of Object.entries(parts)) {
    const place = document.getElementById(name);
    if (place) place.innerHTML = html;
  }
  if (("map" in parts || "plan" in parts) && field && field.value) field.dispatchEvent(new Event("input"));
};
source.onerror = () => { said.textContent = "No answer from `roost status --web`. What is below may be old."; };
"""
_table = partial(table, cell=str)  # its cells are HTML


def job_page(snapshot: JobSnapshot, events_url: str, back: str = "") -> str:
    """The whole page, as the job is now. `back` is the address of the page of all jobs."""
    parts = job_parts(snapshot)
    planned = bool(snapshot.plans)
    body = [f'<p><a href="{text(back)}">all jobs</a></p>\n'] if back else []
    body += [f'<div id="head">{parts["head"]}</div>\n', FIELD * planned]
    body.append(f'<div class="map" id="map">{parts["map"]}</div>\n')
    for name, heading in _SECTIONS.items():
        body.append(f'<section><h2>{heading}</h2><div id="{name}">{parts[name]}</div></section>\n')
    search = search_scripts(parts["plan"]) * planned
    return _page(f"job {snapshot.job}", events_url, "".join(body) + search, search=planned)


def jobs_page(snapshots: Sequence[JobSnapshot], events_url: str) -> str:
    """All jobs side by side."""
    parts = jobs_parts(snapshots)
    return _page("roost jobs", events_url, f'<h1>Jobs</h1>\n<div id="jobs">{parts["jobs"]}</div>\n')


def _page(title: str, events_url: str, body: str, search: bool = False) -> str:
    scripts = (SCRIPT, SEARCH_SCRIPT) if search else (SCRIPT,)
    return (
        f"{page_head(title, *scripts, style=SEARCH_STYLE + STYLE, connects=True)}"
        f'<body data-events="{text(events_url)}">\n<div id="connection" role="status"></div>\n'
        f"{body}<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def jobs_parts(snapshots: Sequence[JobSnapshot]) -> dict[str, str]:
    rows = []
    for one in snapshots:
        _, state, plans, counts, restarts, nodes, driver, last = map(text, job_cells(one))
        driver = _state(driver) if driver else ""
        rows.append((_link(one), _state(state), plans, counts, restarts, nodes, driver, last))
    return {"jobs": _table(JOB_HEADS, rows) or "<p>no job is running</p>"}


def job_parts(snapshot: JobSnapshot, use: str | None = None) -> dict[str, str]:
    """The parts of the page by their ids. The picture of the use is large; a caller can pass an older one."""
    style = job_style(snapshot)
    return {
        "head": "".join(_head(snapshot)),
        "map": "".join(_map(plan, snapshot, style) for plan in snapshot.plans),
        "plan": search_json(snapshot.plans),
        "components": _components(snapshot, style),
        "use": _use(snapshot, style) if use is None else use,
        "processes": "".join(_processes(snapshot)),
        "channels": table(CHANNEL_HEADS, map(channel_cells, snapshot.channels)),
        "nodes": "".join(_nodes(snapshot)),
        "events": table((), [(event,) for event in reversed(snapshot.events[-MOST_EVENTS:])]),
    }


def _link(snapshot: JobSnapshot) -> str:
    name = text(snapshot.job)
    return f'<a href="/job/{quote(snapshot.job)}">{name}</a>' if snapshot.nodes else name


def _head(snapshot: JobSnapshot) -> Iterator[str]:
    yield f"<h1>{text(headline(snapshot))}</h1>\n"
    if snapshot.driver is not None:
        bad = ' class="state bad"' if snapshot.driver.state in BAD - {"unknown"} else ""
        yield f"<p><span{bad}>driver {text(driver_words(snapshot.driver))}</span>; {text(node_words(snapshot))}</p>\n"
    for what in snapshot.silent[:MOST_NODES]:
        yield f'<p class="state bad">no answer from {text(what)}</p>\n'


def _map(plan: Plan, snapshot: JobSnapshot, style: Style) -> str:
    mine = [one for one in snapshot.processes if one.component in plan.components]
    unwell = {_node(one) for one in mine if not one.is_fine}
    nodes = {one.rank: one.state for one in snapshot.nodes if one.state != "up"}
    beside: dict[tuple[int, str], str] = {}
    for one in mine:
        if not one.is_fine and not _on_accelerators(one):
            beside.setdefault((_node(one), one.component), one.state)
    states = MapStates(
        processes={(one.component, one.rank): one.state for one in mine},
        beside=beside,
        nodes=nodes,
        apart=frozenset(unwell | set(nodes)),
        order=("ended", "not started", "idle", "busy", "unknown", "stopped", "hung", "dead"),
    )
    notes = [
        f"{', '.join(state for state in STATES if state in BAD)}: red. idle: pale. not started, ended: dashed."
    ]
    drawn = map_picture(plan, style, {}, notes, False, states)
    return drawn.as_svg(f"plan {plan.short_digest}")


def _components(snapshot: JobSnapshot, style: Style) -> str:
    rows = [
        (
            chip(style, line.name),
            line.processes,
            f'<span class="state{"" if line.is_fine else " bad"}">{text(line.states)}</span>',
            text(line.now),
            f"{line.restarts:,}",
        )
        for line in component_lines(snapshot)
    ]
    return _table(("component", "processes", "states", "in flight", "restarts"), rows)


# -- the use of accelerators ----------------------------------------------------------------------------


def _use(snapshot: JobSnapshot, style: Style) -> str:
    lanes = recent_use(snapshot)
    if not lanes:
        return ""
    minutes = COLUMNS * STEP / 60
    ticks = [f"{minutes * (4 - tick) / 4:g} min ago" for tick in range(4)] + ["now"]
    row = 34 if len(lanes) <= 16 else 22 if len(lanes) <= 32 else 14
    drawn = lanes_picture(lanes, style.hues, ticks, row).as_svg("use of accelerators")
    return (
        '<p class="dim">How much of the time calls ran there that did not wait for a channel or a lock.</p>'
        f'<div class="map">{drawn}</div>'
    )


def recent_use(snapshot: JobSnapshot) -> list[UseLane]:
    """A lane for each accelerator; with many accelerators, one for each node or for several nodes."""
    here = [one for one in snapshot.processes if one.is_here and one.calls.use]
    held = sorted({(_node(one), device) for one in here for device in one.devices if _on_accelerators(one)})
    each = len(held) <= MOST_LANES
    ranks = sorted({node for node, _ in held})
    together = -(-len(ranks) // MOST_NODE_LANES)  # nodes in one lane
    lane_of = {node: place // together for place, node in enumerate(ranks)}
    size = Counter((node, device) if each else (lane_of[node], -1) for node, device in held)
    sums: dict[tuple[int, int], dict[str, list[float]]] = {key: {} for key in size}
    for one in here:
        for device in one.devices if _on_accelerators(one) else ():
            key = (_node(one), device) if each else (lane_of[_node(one)], -1)
            filled = sums[key].setdefault(one.component, [0.0] * COLUMNS)
            for column, share in enumerate(one.calls.use):
                if share:
                    filled[column] += share
    lanes = []
    for key, found in sums.items():
        label = f"node {key[0]}: {key[1]}" if each else _nodes_label(ranks, key[0], together)
        shares = {name: [round(one / size[key], 2) for one in filled] for name, filled in found.items()}
        lanes.append(UseLane(label=label, shares=shares))
    return lanes + _without_accelerators(here)


def _nodes_label(ranks: Sequence[int], lane: int, together: int) -> str:
    there = ranks[lane * together : (lane + 1) * together]
    return f"node{'s' * (len(there) > 1)} {ranges(there)}"[:24]


def _without_accelerators(here: Iterable[ProcessStatus]) -> list[UseLane]:
    """A lane for each component without accelerators: the mean of its processes."""
    bare: dict[str, list[Sequence[float]]] = {}
    for one in here:
        if not _on_accelerators(one):
            bare.setdefault(one.component, []).append(one.calls.use)
    return [
        UseLane(
            label=f"{name} x{len(uses)}",
            shares={name: [round(sum(column) / len(uses), 2) for column in zip(*uses, strict=True)]},
        )
        for name, uses in bare.items()
    ]


def _on_accelerators(one: ProcessStatus) -> bool:
    return one.hardware == "accelerator"


def _node(one: ProcessStatus) -> int:
    return one.planned_node if one.node is None else one.node


# -- tables ---------------------------------------------------------------------------------------------


def _processes(snapshot: JobSnapshot) -> Iterator[str]:
    shown: Sequence[ProcessStatus] = snapshot.processes
    if len(shown) > MOST_PROCESSES:
        shown = snapshot.unwell[:MOST_PROCESSES]
    rows = [
        (text(name), _state(state), *map(text, others)) for name, state, *others in map(process_cells, shown)
    ]
    yield _table(PROCESS_HEADS, rows)
    left = len(snapshot.processes) - len(shown)
    if left:
        fine = "all are well" if not shown else f"{left:,} others left out"
        yield f'<p class="dim">{fine}; `roost status {text(snapshot.job)} --all` shows every process</p>'


def _nodes(snapshot: JobSnapshot) -> Iterator[str]:
    shown = [one for one in snapshot.nodes if one.state != "up" or len(snapshot.nodes) <= MOST_NODES]
    rows = [
        (rank, text(host), _state(state), *others)
        for rank, host, state, *others in map(node_cells, shown[:MOST_NODES])
    ]
    yield _table(NODE_HEADS, rows)
    if len(shown) < len(snapshot.nodes):
        yield f'<p class="dim">{text(node_words(snapshot))}</p>'


def _state(state: str) -> str:
    kind = "bad" if state in BAD else state.replace(" ", "-")
    return f'<span class="state {kind}">{text(state)}</span>'


def changed_parts(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The parts to send to a page that shows `before`."""
    return {name: html for name, html in after.items() if before.get(name) != html}
