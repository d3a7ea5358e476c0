"""Running jobs as text for a terminal: one in full, several side by side, and what changed since the last look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from roost.engine.job_snapshot import ChannelStatus, JobSnapshot, NodeStatus
from roost.engine.status import ProcessStatus
from roost.errors import counted
from roost.views.coloured_findings import DEFAULT_WIDTH
from roost.views.job_words import (
    BAD,
    CHANNEL_HEADS,
    JOB_HEADS,
    NODE_HEADS,
    PROCESS_HEADS,
    channel_cells,
    component_lines,
    doing,
    driver_words,
    headline,
    job_cells,
    job_style,
    node_cells,
    node_words,
    place_words,
    process_cells,
)
from roost.views.style import Style, printable
from roost.views.terminal import drawn_text

FEW_PROCESSES = 32  # up to here every process has a line
FEW_NODES = 8
FEW_EVENTS = 8
MOST_LINES = 40  # of processes or nodes that are not well
_STATE_COLOURS = dict.fromkeys(("busy", "up", "running"), "green") | dict.fromkeys(BAD, "bold red")


def render_job(
    snapshot: JobSnapshot, *, width: int = DEFAULT_WIDTH, colour: bool = False, show_all: bool = False
) -> str:
    """Planned against actual: the components, the processes, the nodes, the channels, and the last events."""
    style = job_style(snapshot)
    parts: list[RenderableType] = [Text(headline(snapshot), "bold")]
    if snapshot.driver is not None:
        words = f"driver {driver_words(snapshot.driver)}; {node_words(snapshot)}"
        parts.append(Text(words, "red" if snapshot.driver.state in BAD - {"unknown"} else ""))
    parts += [Text(f"no answer from {what}", "bold yellow") for what in snapshot.silent[:MOST_LINES]]
    if snapshot.processes:
        parts += ["", _components(snapshot, style), "", *_processes(snapshot, style, show_all)]
    if snapshot.nodes:
        parts += _nodes(snapshot.nodes, show_all)
    if snapshot.channels:
        parts += ["", _channels(snapshot.channels)]
    parts += _events(snapshot, show_all)
    return drawn_text(parts, width, colour)


def render_jobs(snapshots: Sequence[JobSnapshot], *, width: int = DEFAULT_WIDTH, colour: bool = False) -> str:
    """Jobs side by side, a line for each."""
    if not snapshots:
        return "no job is running\n"
    table = _table(JOB_HEADS)
    for one in snapshots:
        job, state, plans, counts, restarts, nodes, driver, last = job_cells(one)
        processes = Text(counts, "bold red" if one.unwell else "")
        table.add_row(
            Text(job, "bold"), _state(state), plans, processes, restarts, nodes, _state(driver), last
        )
    return drawn_text([table], width, colour)


def render_changes(before: JobSnapshot, after: JobSnapshot) -> list[str]:
    """A line for each change of state of the job, a process, a node or the driver, and for each new event."""
    lines = []
    if before.state != after.state:
        lines.append(f"job {after.job}: {before.state} -> {after.state}")
    old = {(one.component, one.rank): one for one in before.processes}
    few = len(after.processes) <= FEW_PROCESSES
    for one in after.processes:
        was = old.get((one.component, one.rank))
        if was is None or (was.pid, _told(was, few)) != (one.pid, _told(one, few)):
            change = f"{was.state} -> {one.state}" if was and was.state != one.state else one.state
            again = f", generation {one.generation}" if was and was.generation != one.generation else ""
            what = f", {doing(one)}" if doing(one) else ""
            lines.append(f"{one.component}:{one.rank} node {place_words(one)[0]}: {change}{again}{what}")
    for node, other in zip(before.nodes, after.nodes, strict=False):
        if node.state != other.state:
            lines.append(f"node {other.rank} ({other.host}): {node.state} -> {other.state}")
    if before.driver and after.driver and before.driver.state != after.driver.state:
        lines.append(f"driver: {before.driver.state} -> {after.driver.state}")
    known = set(before.events)
    return [*lines, *(f"event {event}" for event in after.events if event not in known)]


def _told(process: ProcessStatus, few: bool) -> object:
    """The parts of a line whose change is shown. With many processes, calls are left out."""
    return (process.state, process.calls_in_flight) if few else process.is_fine or process.state


def _components(snapshot: JobSnapshot, style: Style) -> Table:
    heads = ("", "component", "processes", "states", "in flight", "restarts")
    table = _table(heads, numbers=("processes", "restarts"))
    for line in component_lines(snapshot):
        look = style.colours[line.name]
        table.add_row(
            Text(style.letters[line.name], look),
            Text(line.name, look),
            line.processes,
            Text(line.states, "" if line.is_fine else "bold red"),
            line.now,
            str(line.restarts),
        )
    return table


def _processes(snapshot: JobSnapshot, style: Style, show_all: bool) -> Iterator[RenderableType]:
    shown: Sequence[ProcessStatus] = snapshot.processes
    if len(shown) > FEW_PROCESSES and not show_all:
        shown = snapshot.unwell[:MOST_LINES]
    left = len(snapshot.processes) - len(shown)
    if shown:
        table = _table(PROCESS_HEADS)
        for one in shown:
            name, state, *others = process_cells(one)
            table.add_row(Text(name, style.colours[one.component]), _state(state), *others)
        yield table
    if left:
        fine = "all are well" if not shown else f"{counted(left, 'other process')} left out"
        yield Text(f"{fine}; --all shows every process", "dim")


def _nodes(nodes: Sequence[NodeStatus], show_all: bool) -> Iterator[RenderableType]:
    shown = list(nodes)
    if len(shown) > FEW_NODES and not show_all:
        shown = [one for one in nodes if one.state != "up"][:MOST_LINES]
    if not shown:
        return
    table = _table(NODE_HEADS)
    for rank, host, state, *others in map(node_cells, shown):
        table.add_row(rank, printable(host), _state(state), *others)
    yield ""
    yield table


def _channels(channels: Sequence[ChannelStatus]) -> Table:
    table = _table(CHANNEL_HEADS)
    for one in channels:
        name, *numbers = channel_cells(one)
        table.add_row(printable(name), *numbers)
    return table


def _events(snapshot: JobSnapshot, show_all: bool) -> Iterator[RenderableType]:
    if snapshot.events:
        yield ""
        yield Text("events", "dim")
        for event in snapshot.events if show_all else snapshot.events[-FEW_EVENTS:]:
            yield Text(printable(str(event)), "" if not event.cause else "yellow")


def _state(state: str) -> Text:
    return Text(state, _STATE_COLOURS.get(state, ""))


def _table(heads: Sequence[str], numbers: Sequence[str] = ("restarts",)) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for head in heads:
        table.add_column(head, justify="right" if head in numbers else "left", overflow="fold")
    return table
