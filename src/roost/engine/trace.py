"""The calls of a run as a timeline, in the trace-event format that Perfetto and Chrome open."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from roost.engine.backend import ProcessFacts

_MICROSECONDS = 1_000_000
_COLOURS = {"raised": "terrible", "died": "terrible", "running": "grey"}
_LANES = 1_000  # of one process


def trace_events(
    groups: Mapping[str, Sequence[ProcessFacts]], seats: Mapping[str, Sequence[str]], about: Mapping[str, str]
) -> dict[str, Any]:
    """A row for each process, grouped by component, and a bar for each call. Gaps are idle time."""
    now = time.time()
    events: list[dict[str, Any]] = []
    titles: dict[tuple[int, int], str] = {}  # processes of one rank share a row: they follow each other
    for number, (component, processes) in enumerate(groups.items()):
        events.append(_named("process_name", number, 0, component))
        events.append(
            {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}
        )
        for process in processes:
            title = f"{component}:{process.rank} ({seats[component][process.rank]})"
            lanes: list[float] = []  # when the last call of each lane ended: calls of async workers overlap
            for call in process.calls:
                unfinished = now if process.state == "running" else call.start
                end = unfinished if call.end is None else call.end
                if call.is_wait:  # drawn inside the call that waits
                    lane = next((place for place, free in enumerate(lanes) if free > call.start), 0)
                else:
                    lane = next((place for place, free in enumerate(lanes) if free <= call.start), len(lanes))
                    lanes[lane : lane + 1] = [end]
                outcome = "died" if call.end is None and process.state == "dead" else call.outcome
                events.append(
                    {
                        "ph": "X",
                        "name": call.method,
                        "cat": "wait" if call.is_wait else "call",
                        "pid": number,
                        "tid": _thread(process.rank, lane),
                        "ts": call.start * _MICROSECONDS,
                        "dur": max(0.0, end - call.start) * _MICROSECONDS,
                        "args": {"outcome": outcome, "pid": process.pid, "generation": process.generation},
                        **({"cname": _COLOURS[outcome]} if outcome in _COLOURS else {}),
                    }
                )
            for lane in range(max(1, len(lanes))):
                titles[number, _thread(process.rank, lane)] = title
    events += [_named("thread_name", *row, title) for row, title in titles.items()]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": dict(about)}


def _thread(rank: int, lane: int) -> int:
    return rank * _LANES + min(lane, _LANES - 1)


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
