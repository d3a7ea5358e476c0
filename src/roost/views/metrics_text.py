"""Running jobs as metrics, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate

from roost.engine.job_snapshot import JobSnapshot
from roost.engine.workers.call_log import BOUNDS, WAITS, CallTotal
from roost.views.job_words import STATES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PROCESS_STATES = tuple(state for state in STATES if state not in ("ended", "not started"))


class CallCounts:
    """The calls of each component, added up over its processes. An ended process counts as long as its job is there."""

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], tuple[str, str, tuple[CallTotal, ...]]] = {}

    def add(self, snapshots: Collection[JobSnapshot]) -> None:
        """Count the calls of these jobs, and forget all others."""
        jobs = {one.job for one in snapshots}
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] in jobs}
        for one in snapshots:
            for process in one.processes:
                if process.calls.totals:
                    key = (one.job, process.group, process.rank, process.generation, process.pid)
                    self._seen[key] = (one.job, process.component, process.calls.totals)

    def totals(self) -> dict[tuple[str, str, str], CallTotal]:
        """The totals by job, component and method."""
        found: dict[tuple[str, str, str], CallTotal] = {}
        for job, component, totals in self._seen.values():
            for one in totals:
                key = (job, component, one.method)
                found[key] = _sum(found[key], one) if key in found else one
        return found


def _sum(one: CallTotal, other: CallTotal) -> CallTotal:
    return CallTotal(
        method=one.method,
        returned=one.returned + other.returned,
        raised=one.raised + other.raised,
        seconds=one.seconds + other.seconds,
        lasting=tuple(map(sum, zip(one.lasting, other.lasting, strict=True))),
    )


def render_metrics(snapshots: Sequence[JobSnapshot], counts: CallCounts) -> str:
    lines = [*_calls(counts.totals()), *_processes(snapshots), *_channels(snapshots), *_nodes(snapshots)]
    return "".join(f"{line}\n" for line in lines)


def _calls(totals: Mapping[tuple[str, str, str], CallTotal]) -> Iterator[str]:
    calls = {key: one for key, one in totals.items() if one.method not in WAITS}
    yield from _about("roost_calls_total", "counter", "Calls of workers that have ended.")
    for (job, component, method), one in calls.items():
        for outcome, count in (("returned", one.returned), ("raised", one.raised)):
            labels = {"job": job, "component": component, "method": method, "outcome": outcome}
            yield _line("roost_calls_total", labels, count)
    yield from _about("roost_call_seconds", "histogram", "How long calls of workers took.")
    for (job, component, method), one in calls.items():
        labels = {"job": job, "component": component, "method": method}
        bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
        for bound, count in zip(bounds, accumulate(one.lasting), strict=True):
            yield _line("roost_call_seconds_bucket", {**labels, "le": bound}, count)
        yield _line("roost_call_seconds_sum", labels, one.seconds)
        yield _line("roost_call_seconds_count", labels, one.returned + one.raised)
    yield from _about(
        "roost_wait_seconds_total", "counter", "Seconds that calls waited for channels and locks."
    )
    for (job, component, method), one in totals.items():
        if method in WAITS:
            kind = method.rsplit(" ", 1)[-1]
            labels = {"job": job, "component": component, "for": kind}
            yield _line("roost_wait_seconds_total", labels, one.seconds)


def _processes(snapshots: Sequence[JobSnapshot]) -> Iterator[str]:
    running = [
        ({"job": one.job, "component": component}, processes)
        for one in snapshots
        if one.state == "running"
        for component, processes in one.components.items()
    ]
    yield from _about("roost_job_running", "gauge", "1 while the job runs.")
    for one in snapshots:
        yield _line("roost_job_running", {"job": one.job}, int(one.state == "running"))
    yield from _about("roost_processes", "gauge", "Processes of a component by state.")
    for labels, processes in running:
        states = Counter(process.state for process in processes)
        for state in _PROCESS_STATES:
            yield _line("roost_processes", {**labels, "state": state}, states[state])
    yield from _about("roost_restarts_total", "counter", "Restarts of a component's processes.")
    for labels, processes in running:
        yield _line("roost_restarts_total", labels, sum(process.restarts for process in processes))
    yield from _about("roost_calls_in_flight", "gauge", "Calls that run now.")
    for labels, processes in running:
        methods = Counter(method for process in processes for method in process.calls_in_flight)
        for method, count in methods.items():
            yield _line("roost_calls_in_flight", {**labels, "method": method}, count)
    yield from _about(
        "roost_longest_call_seconds", "gauge", "For how long the oldest call in flight has run."
    )
    for labels, processes in running:
        yield _line("roost_longest_call_seconds", labels, max(process.busy_for for process in processes))


def _channels(snapshots: Sequence[JobSnapshot]) -> Iterator[str]:
    gauges = {
        "roost_channel_length": ("Items in a channel.", "length"),
        "roost_channel_taken": ("Items that were taken and not acknowledged.", "taken"),
        "roost_channel_waiting_puts": ("Puts that wait for room.", "waiting_puts"),
        "roost_channel_waiting_takes": ("Takes that wait for items.", "waiting_takes"),
        "roost_channel_put_total": ("Items that were put into a channel.", "put"),
    }
    answered = [
        (one.job, channel) for one in snapshots for channel in one.channels if channel.length is not None
    ]
    for name, (words, field) in gauges.items():
        yield from _about(name, "counter" if name.endswith("_total") else "gauge", words)
        for job, channel in answered:
            yield _line(name, {"job": job, "channel": channel.name}, getattr(channel, field))


def _nodes(snapshots: Sequence[JobSnapshot]) -> Iterator[str]:
    yield from _about("roost_nodes", "gauge", "Nodes of a job by state.")
    for one in snapshots:
        states = Counter(node.state for node in one.nodes)
        for state in ("up", "silent", "gone"):
            yield _line("roost_nodes", {"job": one.job, "state": state}, states[state])


def _about(name: str, kind: str, words: str) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    written = ",".join(f'{key}="{_escaped(one)}"' for key, one in labels.items())
    return f"{name}{{{written}}} {value!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
