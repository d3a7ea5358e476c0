"""The calls of a run as a timeline, in the trace-event format that Perfetto and Chrome open."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from roost.engine.backend import ProcessFacts

_MICROSECONDS = 1_000_000
_COLOURS = {"raised": "terrible", "running": "grey"}


def trace_events(
    groups: Mapping[str, Sequence[ProcessFacts]], seats: Mapping[str, Sequence[str]], about: Mapping[str, str]
) -> dict[str, Any]:
    """A row for each process, grouped by component; a bar for each call. What is empty is idle."""
    now = time.time()
    events: list[dict[str, Any]] = []
    for number, (component, processes) in enumerate(groups.items()):
        events.append(_named("process_name", number, 0, component))
        events.append(
            {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}
        )
        for process in processes:
            title = f"{component}:{process.rank} ({seats[component][process.rank]})"
            events.append(_named("thread_name", number, process.rank, title))
            for call in process.calls:
                end = now if call.end is None else call.end
                events.append(
                    {
                        "ph": "X",
                        "name": call.method,
                        "cat": "call",
                        "pid": number,
                        "tid": process.rank,
                        "ts": call.start * _MICROSECONDS,
                        "dur": max(0.0, end - call.start) * _MICROSECONDS,
                        "args": {
                            "outcome": call.outcome,
                            "pid": process.pid,
                            "generation": process.generation,
                        },
                        **({"cname": _COLOURS[call.outcome]} if call.outcome in _COLOURS else {}),
                    }
                )
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(about)}


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
