"""The search of a page: the places of all processes as small data, and the script that searches them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from roost.config.ranks import ranges
from roost.placement.placement import Placement
from roost.planning.component_plan import ComponentPlan
from roost.planning.plan import Plan
from roost.views.style import printable

STYLE = """
#search { font: inherit; width: 24rem; max-width: 90%; margin-top: .5rem; padding: .3rem .5rem; }
#found { margin: .4rem 0; padding: 0; list-style: none; max-height: 16rem; overflow-y: auto; }
.map.searching .row:not(.hit), .map.searching .band:not(.hit) { opacity: .15; }
"""
FIELD = (
    '<p><input id="search" type="search" placeholder="rollout:3, node 2, a component or a host" '
    'aria-label="Search by component, rank, node or host" autocomplete="off"></p>\n<ul id="found"></ul>\n'
)
SCRIPT = r"""
let plan;  // a live page replaces its data
const field = document.getElementById("search"), list = document.getElementById("found");
const map = document.querySelector(".map"), MOST = 200;
const within = (spans, number) => spans.split(",").some(span => {
  const [first, last] = span.split("-").map(Number);
  return first <= number && number <= (last === undefined ? first : last);
});
const within_any = (spans, numbers) => [...numbers].some(number => within(spans, number));
function place(component, rank) {
  for (const [first, node, nodes, pattern] of component.runs) {
    const each = plan.patterns[pattern];
    if (rank >= first && rank < first + nodes * each.length) {
      const at = rank - first;
      return {component, rank, node: node + Math.floor(at / each.length), holds: each[at % each.length]};
    }
  }
}
function* on_node(component, number) {
  for (const [first, node, nodes, pattern] of component.runs) {
    const each = plan.patterns[pattern];
    if (number >= node && number < node + nodes)
      for (let at = 0; at < each.length; at++)
        yield {component, rank: first + (number - node) * each.length + at, node: number, holds: each[at]};
  }
}
function lookup(query) {
  const all = plan.components, node = query.match(/^node\s*(\d+)$/), rank = query.match(/^(?:(.+?)[\s:]+)?(\d+)$/);
  const named = text => all.filter(one => one.name.toLowerCase().includes(text));
  if (node) return {places: all.flatMap(one => [...on_node(one, Number(node[1]))]), nodes: [Number(node[1])]};
  if (rank) {
    const exact = all.filter(one => one.name.toLowerCase() === rank[1]);
    const wanted = rank[1] === undefined ? all : exact.length ? exact : named(rank[1]);
    return {places: wanted.map(one => place(one, Number(rank[2]))).filter(Boolean)};
  }
  const hosts = plan.hosts.map((host, number) => host.toLowerCase().includes(query) ? number : -1).filter(n => n >= 0);
  const components = named(query);
  if (components.length || !hosts.length) return {places: [], components};
  return {places: hosts.slice(0, MOST).flatMap(n => all.flatMap(one => [...on_node(one, n)])), nodes: hosts};
}
function show() {
  plan = JSON.parse(document.getElementById("plan").textContent);
  const query = field.value.trim().toLowerCase();
  history.replaceState(null, "", query ? "#" + encodeURIComponent(query) : " ");
  list.replaceChildren();
  map.classList.toggle("searching", Boolean(query));
  for (const one of map.querySelectorAll(".hit")) one.classList.remove("hit");
  if (!query) return;
  const {places, nodes, components = []} = lookup(query);
  const line = text => { const item = document.createElement("li"); item.textContent = text; list.append(item); };
  for (const one of components) line(`${one.name}: ${one.count} processes on nodes ${one.nodes}`);
  for (const {component, rank, node, holds} of places.slice(0, MOST)) {
    const host = plan.hosts[node] ? ` (${plan.hosts[node]})` : "";
    line(`${component.name}:${rank} is on node ${node}${host}${holds ? ", " + holds : ""}`);
  }
  if (places.length > MOST) line(`and ${places.length - MOST} more`);
  if (!places.length && !components.length && !nodes) line("nothing found");
  const rows = new Set(nodes || places.map(one => one.node));
  for (const row of map.querySelectorAll(".row")) {
    const here = row.dataset.nodes, bands = new Set();
    const inside = within_any(here, rows);
    for (const one of components) row.querySelectorAll(`.band.c${one.bit}`).forEach(band => bands.add(band));
    if (inside && nodes) row.querySelectorAll(".band").forEach(band => bands.add(band));
    else if (inside) for (const {component, rank, node} of places) if (within(here, node))
      for (const band of row.querySelectorAll(`.band.c${component.bit}`))
        if (!band.dataset.ranks || within(band.dataset.ranks, rank)) bands.add(band);
    row.classList.toggle("hit", bands.size > 0 || Boolean(inside && nodes));
    bands.forEach(band => band.classList.add("hit"));
  }
}
field.addEventListener("input", show);
window.addEventListener("hashchange", () => { field.value = decodeURIComponent(location.hash.slice(1)); show(); });
if (location.hash.length > 1) { field.value = decodeURIComponent(location.hash.slice(1)); show(); }
"""


def search_scripts(data: str) -> str:
    """The data, which no browser runs, and the script."""
    return f'<script type="application/json" id="plan">{data}</script>\n<script>{SCRIPT}</script>\n'


def search_json(plans: Sequence[Plan]) -> str:
    """The data as text. Names from files are escaped, so they cannot end its element."""
    written = json.dumps(search_data(plans), separators=(",", ":"))
    return written.replace("<", "\\u003c").replace(">", "\\u003e")


def search_data(plans: Sequence[Plan]) -> dict[str, Any]:
    """The processes of each component in runs of nodes that look the same: first rank, first node, nodes, pattern.

    A pattern lists what each process on such a node holds.
    """
    patterns: dict[tuple[str, ...], int] = {}
    bits: dict[str, int] = {}
    nodes = max((plan.inventory.nodes for plan in plans), key=len, default=())
    hosts = [printable(node.ip or node.hostname) for node in nodes]
    return {
        "components": [
            {
                "name": name,
                "bit": bits.setdefault(name, len(bits)),
                "count": component.world_size,
                "nodes": ranges(set(component.nodes)),
                "runs": list(_runs(component, patterns)),
            }
            for plan in plans
            for name, component in plan.components.items()
        ],
        "hosts": hosts if any(hosts) else [],
        "patterns": [list(pattern) for pattern in patterns],
    }


def _runs(component: ComponentPlan, patterns: dict[tuple[str, ...], int]) -> Iterator[list[int]]:
    run: list[int] = []
    for node, places in groupby(component.members, key=lambda place: place.cluster_node_rank):
        held = list(places)
        pattern = patterns.setdefault(tuple(map(holds, held)), len(patterns))
        if run and run[1] + run[2] == node and run[3] == pattern:
            run[2] += 1
            continue
        if run:
            yield run
        run = [held[0].rank, node, 1, pattern]
    yield run


def holds(place: Placement) -> str:
    """`accelerators 0-1`, `Franka 0`, or nothing."""
    return _held(place.holds_accelerators, place.kind, place.hardware)


@cache  # the processes of all nodes hold the same few accelerators
def _held(accelerators: bool, kind: str, hardware: tuple[int, ...]) -> str:
    if not hardware:
        return ""
    name = f"accelerator{'s' * (len(hardware) > 1)}" if accelerators else kind
    return f"{name} {ranges(hardware)}"
