"""A run: the whole job from its plan."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from roost.engine.backend import Backend
from roost.engine.events import Event
from roost.engine.group import WorkerGroup
from roost.engine.status import Status, process_status
from roost.engine.trace import trace_events
from roost.errors import Finding, WorkerError, nearest
from roost.planning.files import write_file
from roost.planning.plan import Plan

LOOK_WITHIN = 5.0  # seconds in which the nodes should say what their processes do


class Run:
    """Every component of a launched plan: `run["actor"]` is its worker group."""

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        groups: Mapping[str, WorkerGroup],
        taken: Sequence[tuple[int, int]],
        events: Sequence[Event],
    ) -> None:
        self.plan = plan
        self.groups: Mapping[str, WorkerGroup] = MappingProxyType(dict(groups))  # by component
        self._backend = backend
        self._taken: list[tuple[int, int]] | None = list(taken)  # None once it was shut down
        self._events = list(events)

    @property
    def job(self) -> str:
        return self._backend.job

    @property
    def events(self) -> list[Event]:
        """What happened, in order."""
        return list(self._events)

    def __getitem__(self, component: str) -> WorkerGroup:
        if component not in self.groups:
            skipped = component in self.plan.components
            raise WorkerError(
                Finding(
                    code="RE116",
                    what=f"component {component!r} runs nothing in this run"
                    if skipped
                    else f"the run has no component {component!r}"[:200],
                    remedy="" if skipped else nearest(str(component), self.groups),
                )
            )
        return self.groups[component]

    def status(self, timeout: float = LOOK_WITHIN) -> Status:
        """Planned against actual, process by process. Busy, stopped and dead processes are seen too."""
        self._backend.check_open()
        found = []
        for name, part in self.plan.components.items():
            group = self.groups.get(name)
            facts = {one.rank: one for one in group._observed(timeout)} if group is not None else {}
            absent = "not started" if group is None else "ended"
            found += [process_status(name, place, facts.get(place.rank), absent) for place in part.members]
        return Status(found)

    def trace(self, path: str | os.PathLike[str], timeout: float = LOOK_WITHIN) -> None:
        """Write the calls of every process as a timeline that Perfetto (ui.perfetto.dev) and Chrome open.

        Each process keeps its last 16,384 calls.
        """
        self._backend.check_open()
        running = {name: group for name, group in self.groups.items() if group.is_running}
        traced = trace_events(
            {name: group._observed(timeout) for name, group in running.items()},
            {name: group._running().seats for name, group in running.items()},
            {"job": self.job, "plan": self.plan.digest, "job_file": self.plan.job_file},
        )
        write_file(path, json.dumps(traced) + "\n", private=True)

    def shutdown(self) -> None:
        """End every process of the run and give back its accelerators. May be called twice."""
        for group in self.groups.values():
            group.shutdown()
        taken, self._taken = self._taken, None
        if taken is not None:
            self._backend.unreserve(taken)
            self._events.append(Event(action="shut down"))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} x{len(group)}" for name, group in self.groups.items())
        return f"<run of job {self.job}: {parts or 'nothing'}>"
