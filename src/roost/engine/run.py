"""A run: the whole job from its plan."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import MappingProxyType

from roost.engine.backend import Backend, GroupOrder, Progress, Report
from roost.engine.events import Event
from roost.engine.group import WorkerGroup
from roost.engine.job_snapshot import LOOK_WITHIN
from roost.engine.launch_orders import UNDER_ANOTHER_NAME
from roost.engine.run_record import ProcessRecord, RunRecord
from roost.engine.status import Status, absent_status
from roost.engine.trace import trace_events
from roost.engine.workers.result import seconds_or
from roost.engine.workers.worker import START_WITHIN
from roost.errors import ClusterError, WorkerError, counted, error_for, nearest
from roost.planning.component_plan import needs_of
from roost.planning.files import write_file
from roost.planning.launch_preparation import on_nodes, shape_differences, with_secrets
from roost.planning.plan import Plan


class Run(AbstractContextManager["Run"]):
    """Every component of a launched plan: `run["actor"]` is its worker group."""

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        groups: Mapping[str, WorkerGroup],
        taken: Sequence[tuple[int, int]],
        launched: Sequence[Event],
        node_groups: Sequence[str] = (),
    ) -> None:
        self._plan, self._launched = plan, tuple(launched)
        self.groups: Mapping[str, WorkerGroup] = MappingProxyType(dict(groups))  # by component
        self._backend = backend
        self._taken: list[tuple[int, int]] | None = list(taken)  # None once it was shut down
        self._node_groups = tuple(node_groups)  # those that the cluster knows for this run
        self._events: list[Event] = []  # once it was shut down

    @property
    def job(self) -> str:
        return self._backend.job

    @property
    def holds(self) -> tuple[tuple[int, int], ...]:
        """The accelerators reserved for it, by node and number."""
        return tuple(self._taken or ())

    @property
    def events(self) -> list[Event]:
        """What happened, in the order in which the driver told it."""
        if self._taken is None:
            return list(self._events)
        history, mine = self._backend.events, {group.name for group in self.groups.values()}
        # By its place and not by its time: an event has the time of its node, whose clock may be behind.
        first = next((place for place, event in enumerate(history) if event in self._launched), 0)
        return [event for event in history[first:] if not event.component or event.component in mine]

    @property
    def plan(self) -> Plan:
        """What runs: the plan that was launched, or what it became when processes were moved to spare nodes."""
        return self._backend.current_plan(self._plan)

    def __getitem__(self, component: str) -> WorkerGroup:
        if component not in self.groups:
            skipped = component in self.plan.components
            raise WorkerError(
                code="RE116",
                what=f"component {component!r} runs nothing in this run"
                if skipped
                else f"the run has no component {component!r}"[:200],
                remedy="" if skipped else nearest(str(component), self.groups),
            )
        return self.groups[component]

    def status(self, timeout: float = LOOK_WITHIN) -> Status:
        """Planned against actual, process by process. Busy, stopped and dead processes are seen too."""
        self._backend.check_open()
        seen = {(one.group, one.rank): one for one in self._backend.snapshot(timeout).processes}
        found = []
        for name, part in self.plan.components.items():
            group = self.groups.get(name)
            running = group is not None and group.is_running
            for place in part.members:
                there = seen.get((group.name, place.rank)) if group is not None and running else None
                absent = absent_status(name, place, "not started" if group is None else "ended")
                found.append(there or absent)
        return Status(found)

    def trace(self, path: str | os.PathLike[str], timeout: float = LOOK_WITHIN) -> None:
        """Write the calls of every process as a timeline that Perfetto (ui.perfetto.dev) and Chrome open.

        Each process keeps its last 16,384 calls, and a group that is shut down keeps none. A process that a restart
        has replaced is in the row of its rank.
        """
        running = self._running_groups()
        traced = trace_events(
            {name: group._observed(timeout) for name, group in running.items()},
            {name: group._running().seats for name, group in running.items()},
            {"job": self.job, "plan": self.plan.digest, "job_file": self.plan.job_file},
        )
        write_file(path, json.dumps(traced) + "\n", private=True)

    def record(self, timeout: float = LOOK_WITHIN) -> RunRecord:
        """What happened so far, as a value: `roost.write_report` makes a page of it."""
        plan = self.plan
        processes = []
        for name, group in self._running_groups().items():
            places = plan.components[name].members
            for facts in group._observed(timeout):
                place = places[facts.rank]
                devices = place.hardware if place.holds_accelerators else ()
                processes.append(
                    ProcessRecord(
                        component=name,
                        rank=facts.rank,
                        generation=facts.generation,
                        node=place.cluster_node_rank if facts.node is None else facts.node,
                        devices=devices,
                        calls=facts.calls,
                        alive=facts.state == "running",
                    )
                )
        return RunRecord(
            job=self.job,
            plan=plan,
            processes=tuple(processes),
            events=tuple(self.events),
            until=time.time(),
        )

    def _running_groups(self) -> dict[str, WorkerGroup]:
        """The groups whose calls can still be asked for."""
        self._backend.check_open()
        if self._taken is None:
            raise WorkerError(
                code="RE116",
                what="the run was shut down, and the times of its calls are gone",
                remedy="ask before run.shutdown(), or inside the `with` block",
            )
        return {name: group for name, group in self.groups.items() if group.is_running}

    def shutdown(self) -> None:
        """End every process of the run and give back its accelerators. May be called twice."""
        with ExitStack() as ending:  # one that fails keeps no other from ending
            ending.callback(self._give_back)
            ending.callback(self._keep_events)
            for group in reversed([*self.groups.values()]):
                ending.callback(group.shutdown)

    def _keep_events(self) -> None:
        self._events = self.events  # an attached process asks a manager, which may be gone

    def _end_with_groups(self) -> None:
        """Give back what it holds when the last of its groups is shut down."""
        for group in self.groups.values():
            group._afterwards = self._give_back_unless_running

    def _give_back_unless_running(self) -> None:
        if not any(group.is_running for group in self.groups.values()):
            self._give_back()

    def _give_back(self) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            self._backend.unreserve(taken)
            self._backend.forget_groups(self._node_groups)

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} x{len(group)}" for name, group in self.groups.items())
        return f"<run of job {self.job}: {parts or 'nothing'}>"


def start_run(
    backend: Backend, plan: Plan, orders: Sequence[GroupOrder], timeout: float, report: Report | None = None
) -> Run:
    """Reserve what the plan needs and start these components of it, all or none."""
    limit = seconds_or(START_WITHIN, timeout)
    differences = shape_differences(plan, backend.inventory)
    if differences:
        raise error_for(differences)
    plan = with_secrets(on_nodes(plan, backend.inventory.nodes), backend.inventory.groups, os.environ)
    taken_names = backend.taken([order.name for order in orders])
    if taken_names:
        raise ClusterError(
            code="RE115",
            what=f"a group {taken_names[0]!r} is already running in job {backend.job!r}",
            remedy=f"shut it down first, or {UNDER_ANOTHER_NAME}",
        )
    tell = report or (lambda _: None)
    needs = needs_of(list(plan.components.values()))
    with ExitStack() as undoing:
        learned = backend.learn_groups(plan.inventory.groups)
        undoing.callback(backend.forget_groups, learned)
        held = backend.reserve(needs)
        undoing.callback(backend.unreserve, held)
        count = sum(map(len, needs.values()))
        tell(Progress(phase="reserved", done=count, total=count))
        running = backend.start(plan, orders, limit, tell)
        undoing.pop_all()
    groups = {
        order.component.name: WorkerGroup(order.name, backend, running[order.name], owned=True)
        for order in orders
    }
    launched = [
        Event(action="launched", component=order.name, detail=counted(len(order.placements), "process"))
        for order in orders
    ]
    backend.record(launched)
    return Run(plan, backend, groups, held, launched, learned)
