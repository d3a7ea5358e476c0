"""Words about a running job that its text, its page and its lines of changes share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from roost.config.ranks import ranges
from roost.engine.job_snapshot import ChannelStatus, DriverStatus, JobSnapshot, NodeStatus
from roost.engine.status import ProcessStatus
from roost.errors import counted
from roost.views.style import Style

STATES = ("busy", "idle", "stopped", "hung", "dead", "unknown", "ended", "not started")
BAD = frozenset(("stopped", "hung", "dead", "unknown", "silent", "gone"))  # of processes, nodes and drivers
MOST_METHODS = 3
JOB_HEADS = ("job", "state", "plan", "processes", "restarts", "nodes", "driver", "last event")
PROCESS_HEADS = ("process", "state", "node", "devices", "pid", "restarts", "call")
NODE_HEADS = ("node", "host", "state", "accelerators", "load", "memory free")
CHANNEL_HEADS = ("channel", "length", "taken", "puts wait", "takes wait", "put in all", "again")


def job_style(snapshot: JobSnapshot) -> Style:
    """One look for each component of the job, in the order of its plans: they may have components in common."""
    planned = (name for plan in snapshot.plans for name in plan.components)
    return Style.of([*planned, *snapshot.components])


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentLine:
    """The processes of one component, summed up."""

    name: str
    processes: str  # `3 of 4`: running processes of planned ones
    states: str  # `2 busy, 1 idle, 1 dead`
    now: str  # `generate x2 for 41 s`
    restarts: int
    is_fine: bool


def component_lines(snapshot: JobSnapshot) -> Iterator[ComponentLine]:
    for name, processes in snapshot.components.items():
        planned = sum(one.is_here for one in processes)
        well = sum(one.state in ("busy", "idle") for one in processes)
        number = f"{well:,} of {planned:,}" if well < planned else f"{len(processes):,}"
        yield ComponentLine(
            name=name,
            processes=number,
            states=state_counts(processes),
            now=", ".join(in_flight(processes)),
            restarts=sum(one.restarts for one in processes),
            is_fine=all(one.is_fine for one in processes),
        )


def state_counts(processes: Sequence[ProcessStatus]) -> str:
    """`2 busy, 1 idle, 1 dead`."""
    states = Counter(one.state for one in processes)
    return ", ".join(f"{states[state]:,} {state}" for state in STATES if states[state])


def in_flight(processes: Sequence[ProcessStatus]) -> list[str]:
    """`generate x2 for 41 s`: each running method, its number of processes, and its longest call."""
    longest: dict[str, float] = {}
    count: Counter[str] = Counter()
    for one in processes:
        for call in one.calls.in_flight if one.state != "dead" else ():
            longest[call.method] = max(longest.get(call.method, 0.0), call.seconds)
            count[call.method] += 1
    words = [
        f"{method}{f' x{count[method]:,}' if count[method] > 1 else ''} for {duration(longest[method])}"
        for method in sorted(longest, key=lambda method: -longest[method])
    ]
    return (
        words if len(words) <= MOST_METHODS else [*words[:MOST_METHODS], f"{len(words) - MOST_METHODS} more"]
    )


def doing(process: ProcessStatus) -> str:
    """`train for 12 s, waits for a channel`, or the last call if none runs."""
    if process.calls_in_flight:
        names = list(dict.fromkeys(process.calls_in_flight))
        more = f" and {len(names) - MOST_METHODS} more" if len(names) > MOST_METHODS else ""
        words = f"{', '.join(names[:MOST_METHODS])}{more} for {duration(process.busy_for)}"
        return f"{words}, {process.waits}" if process.waits else words
    return f"last {process.last_call}" if process.last_call else ""


def place_words(process: ProcessStatus) -> tuple[str, str]:
    """Its node and its devices, planned against actual: `1 (planned 0)`, `0-1 (sees 2,3)`."""
    node = str(process.planned_node)
    if process.node is not None and process.node != process.planned_node:
        node = f"{process.node} (planned {process.planned_node})"
    held = ranges(process.devices) if process.devices else ""
    if process.hardware not in ("", "accelerator"):
        return node, f"{process.hardware} {held}"
    planned = ",".join(map(str, process.devices))
    return node, f"{held} (sees {process.visible})" if held and process.visible not in ("", planned) else held


def headline(snapshot: JobSnapshot) -> str:
    """`job keydoor: running for 3 min 12 s, plan d5e8022b2bf9 of job.yaml`."""
    words = f"job {snapshot.job}: {snapshot.state}"
    began = next((event.time for event in snapshot.events if event.action == "launched"), None)
    if snapshot.state == "running" and began is not None:
        words += f" for {duration(snapshot.time - began)}"
    elif snapshot.state == "ended" and snapshot.events:
        words += f", its last event {duration(snapshot.time - snapshot.events[-1].time)} ago"
    if snapshot.starting:
        words += f", {counted(snapshot.starting, 'process')} starting"
    plans = [
        f"{plan.short_digest}{f' of {plan.job_file}' if plan.job_file else ''}" for plan in snapshot.plans
    ]
    return f"{words}, plan{'s' * (len(plans) > 1)} {', '.join(plans)}" if plans else words


def job_cells(one: JobSnapshot) -> tuple[str, ...]:
    last = one.events[-1] if one.events else None
    return (
        one.job,
        one.state,
        ", ".join(plan.short_digest for plan in one.plans),
        state_counts(one.processes),
        f"{sum(process.restarts for process in one.processes):,}" if one.processes else "",
        node_words(one).replace(" nodes", "").replace(" node", "") if one.nodes else "",
        one.driver.state if one.driver else "",
        f"{last.action} {duration(one.time - last.time)} ago" if last else "",
    )


def process_cells(one: ProcessStatus) -> tuple[str, ...]:
    pid = "" if one.pid is None else str(one.pid)
    restarts = "" if one.generation is None else str(one.generation)
    return f"{one.component}:{one.rank}", one.state, *place_words(one), pid, restarts, doing(one)


def node_cells(one: NodeStatus) -> tuple[str, ...]:
    machine = one.machine
    load = f"{machine.load:.1f} of {machine.cpus}" if machine else ""
    memory = f"{machine.free_gib:.0f} of {machine.memory_gib:.0f} GiB" if machine else ""
    return str(one.rank), one.host, one.state, str(one.accelerators), load, memory


def channel_cells(one: ChannelStatus) -> tuple[str, ...]:
    length = "no answer" if one.length is None else f"{one.length:,}"
    most = f" of {one.capacity:,}" if one.capacity is not None else ""
    numbers = (one.taken, one.waiting_puts, one.waiting_takes, one.put, one.redelivered)
    texts = ("" if one.length is None else f"{number:,}" for number in numbers)
    return one.name, length + most + ", closed" * one.closed, *texts


def driver_words(driver: DriverStatus) -> str:
    where = f"on node {driver.node}" if driver.node is not None else "on a machine outside the job"
    return f"pid {driver.pid} {where}, {driver.state}"


def node_words(snapshot: JobSnapshot) -> str:
    """`3 nodes up`, or `2 of 3 nodes up, 1 gone`."""
    states = Counter(one.state for one in snapshot.nodes)
    others = ", ".join(f"{states[state]:,} {state}" for state in ("silent", "gone") if states[state])
    if not others:
        return f"{counted(len(snapshot.nodes), 'node')} up"
    return f"{states['up']:,} of {counted(len(snapshot.nodes), 'node')} up, {others}"


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 12 s`, `2 h 5 min`, `3 d 4 h`."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, below, smaller in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"
