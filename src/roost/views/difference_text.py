"""The differences between two plans as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roost.config.ranks import ranges
from roost.errors import counted
from roost.inventory.resources import ACCELERATOR, BARE_NODE
from roost.planning.differences import ComponentChange, Differences, ProcessChange, Seat, SettingChange
from roost.views.components import listed
from roost.views.style import printable

MAX_LINES = 12  # of one component, or of nodes


def render_differences(found: Differences, before: str, after: str, show_all: bool = False) -> str:
    if not found:
        return f"{before} and {after}: no differences\n"
    lines = [f"{before} -> {after}"]
    nodes = [
        f"node {one.node} {one.change}: {_arrow(one.before, one.after)}"
        if one.change == "changed"
        else f"node {one.node} {one.change}: {one.before or one.after}"
        for one in found.nodes
    ]
    lines += _bounded(nodes, show_all)
    for group in found.node_groups:
        lines += [f"node group {group.label} {group.change}", *_settings(group.settings)]
    for component in found.components:
        lines += [_head(component), *_settings(component.settings)]
        lines += _bounded([f"  {line}" for line in _processes(component.processes)], show_all)
    return "\n".join(map(printable, lines)) + "\n"


def _bounded(lines: list[str], show_all: bool) -> list[str]:
    return listed(lines, MAX_LINES, show_all, "  ... {} more lines; --all shows them")


def _head(component: ComponentChange) -> str:
    if component.change != "changed":
        return f"{component.component} {component.change}: {counted(len(component.processes), 'process')}"
    counts = {kind: sum(one.change == kind for one in component.processes) for kind in _KINDS}
    words = ", ".join(f"{count:,} {_KINDS[kind]}" for kind, count in counts.items() if count)
    return f"{component.component} changed" + (f": {words}" if words else "")


_KINDS = {"moved": "moved", "added": "added", "gone": "gone", "changed": "on other devices"}


def _settings(settings: Sequence[SettingChange]) -> Iterator[str]:
    for one in settings:
        yield f"  {one.setting}: {_arrow(one.before or 'none', one.after or 'none')}"


def _processes(changes: Sequence[ProcessChange]) -> Iterator[str]:
    """A line for each series of ranks with the same change between the same nodes."""
    run: list[ProcessChange] = []
    for change in changes:
        if run and (change.rank != run[-1].rank + 1 or _key(change) != _key(run[-1])):
            yield _line(run)
            run = []
        run.append(change)
    if run:
        yield _line(run)


def _key(change: ProcessChange) -> object:
    sides = [one and (one.node, one.kind, one.group) for one in (change.before, change.after)]
    return change.change, sides


def _line(run: Sequence[ProcessChange]) -> str:
    kind, ranks = run[0].change, ranges(one.rank for one in run)
    before = _place([one.before for one in run if one.before])
    after = _place([one.after for one in run if one.after])
    if kind in ("added", "gone"):
        return f"{ranks} {kind}: {before or after}"
    groups = {(one.before.group, one.after.group) for one in run if one.before and one.after}
    through = "".join(f", through {_arrow(*pair)}" for pair in groups if pair[0] != pair[1])
    return f"{ranks} {kind}: {_arrow(before, after)}{through}"


def _place(seats: Sequence[Seat]) -> str:
    if not seats:
        return ""
    first = seats[0]
    if first.kind == BARE_NODE:
        return f"node {first.node}"
    held = ranges({number for seat in seats for number in seat.devices})
    noun = f"accelerator{'s' * (not held.isdecimal())}" if first.kind == ACCELERATOR else first.kind
    return f"node {first.node} {noun} {held}"


def _arrow(before: str, after: str) -> str:
    return f"{before} -> {after}"
