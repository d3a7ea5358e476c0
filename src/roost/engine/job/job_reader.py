"""Reads a running job into a snapshot, from any process of its cluster. Starts nothing, and asks no worker.

The job's managers know its plans, groups and events; the agents of its nodes see the processes; each channel knows
its items. The reader asks all of them at once and waits for none past the deadline: the snapshot names those that do
not answer. It does not ask again for plans, groups and events that it has read.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import ray

from roost.engine.connection.actors import actors_of, find_actor
from roost.engine.connection.cluster_watch import check_head, patient_wait
from roost.engine.connection.discovery import living_nodes
from roost.engine.connection.implicit_start import OWN_THREADS
from roost.engine.events import Event
from roost.engine.job.channel_host import channel_actor
from roost.engine.job.managers import NodeManager, WorkerManager, running_jobs, running_text
from roost.engine.job.node_agent import NodeSight, ProcessSight, agent_name
from roost.engine.job_snapshot import (
    LOOK_WITHIN,
    DriverStatus,
    JobSnapshot,
    NodeStatus,
    channel_status,
)
from roost.engine.kept_plans import keep_plan
from roost.engine.processes.process_facts import Process
from roost.engine.status import ProcessStatus, absent_status, seen_status
from roost.errors import JobEnded, NoAnswer, nearest
from roost.planning.plan import Plan

MOST_EVENTS = 1_000
MOST_CHANNELS = 200
MOST_AT_ONCE = 16  # jobs
_CHANNEL = channel_actor("")
_HOSTS = (_CHANNEL, "data-buffer:")  # of channels and data buffers


@dataclass(frozen=True, slots=True)
class _Question:
    """An open question to one actor. The reader does not ask the actor again before it has answered."""

    ref: Any
    look: int  # the number of the read that asked
    about: Any = None  # what the answer refers to


class JobReader:
    """Reads one job again and again."""

    def __init__(self, job: str) -> None:
        self.job = job
        self._handles: dict[str, Any] = {}  # actors of the job, by name
        self._asked: dict[str, _Question] = {}  # by the name of the actor
        self._looks = 0
        self._layout: dict[str, Any] = {}
        self._plans: dict[str, Plan] = {}  # by digest
        self._became: dict[str, str] = {}
        self._groups: dict[str, Any] = {}
        self._ended: set[tuple[str, str]] = set()
        self._revision, self._recorded = -1, 0
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)

    def read(self, within: float = LOOK_WITHIN) -> JobSnapshot:
        """A snapshot of the job now. Raises `JobEnded` if the job does not run."""
        deadline = time.monotonic() + within
        self._looks += 1
        silent: list[str] = []
        there = actors_of(self.job, within)
        if NodeManager.NAME not in there:
            jobs = running_jobs(within)
            raise JobEnded(
                code="RE106",
                what=f"no job {self.job!r} is running",
                why=running_text(jobs),
                remedy=nearest(self.job, jobs) if jobs else "",
            )
        self._learn(silent, deadline)
        facts = self._layout.get("facts", ())
        watched = self._watched()
        for rank, node in enumerate(facts):
            name = agent_name(node.node_id)
            if name in there:
                driver = self._layout["driver"] if node.node_id == self._layout["driver_node"] else None
                self._ask(name, "look", watched.get(rank, []), driver, about=watched.get(rank, []))
        channels = sorted(name for name in there if name.startswith(_CHANNEL))[:MOST_CHANNELS]
        for name in channels:
            self._ask(name, "state")
        answers = self._answers(deadline)
        alive = _alive_nodes(silent, max(0.1, deadline - time.monotonic()))
        return JobSnapshot(
            job=self.job,
            time=time.time(),
            state="running",
            plans=tuple(self._shown_plans()),
            driver=self._driver(answers),
            nodes=tuple(self._nodes(answers, alive, silent)),
            processes=tuple(self._processes(answers)),
            starting=self._starting(there),
            channels=tuple(
                channel_status(name.removeprefix(_CHANNEL), answers.get(name, (None,))[0])
                for name in channels
            ),
            events=tuple(self._events),
            silent=tuple(silent),
        )

    # -- asking ----------------------------------------------------------------------------------------

    def _ask(self, name: str, method: str, *args: Any, about: Any = None) -> None:
        if name in self._asked:
            return
        if name not in self._handles:
            try:
                self._handles[name] = find_actor(name, self.job)
            except ValueError:  # the actor has just ended
                return
        self._asked[name] = _Question(getattr(self._handles[name], method).remote(*args), self._looks, about)

    def _answers(self, deadline: float) -> dict[str, tuple[Any, Any]]:
        """The answers that came by the deadline, each with what it refers to, by the name of the actor.

        Does not wait again for actors that were silent in an earlier read.
        """
        refs = {question.ref: name for name, question in self._asked.items()}
        new = [question.ref for question in self._asked.values() if question.look == self._looks]
        if new:
            patient_wait(new, max(0.0, deadline - time.monotonic()), len(new))
        ready = ray.wait(list(refs), num_returns=len(refs), timeout=0)[0] if refs else []
        found: dict[str, tuple[Any, Any]] = {}
        for ref in ready:
            question = self._asked.pop(refs[ref])
            try:
                found[refs[ref]] = (ray.get(ref, timeout=0), question.about)
            except ray.exceptions.RayError:  # the actor is gone; a new one may have its name
                self._handles.pop(refs[ref], None)
        return found

    def _learn(self, silent: list[str], deadline: float) -> None:
        """Ask the managers for changes since the last read."""
        self._ask(NodeManager.NAME, "describe", list(self._plans))
        self._ask(WorkerManager.NAME, "describe", self._revision, self._recorded)
        managers = (NodeManager.NAME, WorkerManager.NAME)
        others = {name: self._asked.pop(name) for name in list(self._asked) if name not in managers}
        found = self._answers(deadline)
        lost = [name for name in managers if name not in found and name not in self._asked]
        if lost:
            check_head()
            raise JobEnded(code="RE106", what=f"job {self.job!r} has ended", why=f"its {lost[0]} is gone")
        silent += [f"the job's {name}" for name in managers if name in self._asked]
        self._asked |= others
        if NodeManager.NAME in found:
            told = found[NodeManager.NAME][0]
            self._layout, self._became = told["layout"], told["became"]
            for digest, plan in told["plans"].items():
                keep_plan(self._plans, digest, pickle.loads(plan))
        if WorkerManager.NAME in found:
            told = found[WorkerManager.NAME][0]
            if told["revision"] != self._revision:
                self._groups, self._ended = told["groups"], set(told["ended"])
            self._revision, self._recorded = told["revision"], told["recorded"]
            self._events.extend(told["events"])

    def _watched(self) -> dict[int, list[tuple[Process, int]]]:
        """The processes on each node, and the descriptors of their logs."""
        ranks = self._ranks()
        found: dict[int, list[tuple[Process, int]]] = {}
        for group in self._groups.values():
            for report in group["reports"]:
                if report.node_id in ranks:
                    found.setdefault(ranks[report.node_id], []).append((report.process, report.call_log))
        return found

    def _ranks(self) -> dict[str, int]:
        """The ranks of the job's nodes, by their ids."""
        return {node.node_id: rank for rank, node in enumerate(self._layout.get("facts", ()))}

    # -- what the answers mean -------------------------------------------------------------------------

    def _sights(self, answers: Mapping[str, tuple[Any, Any]]) -> Iterator[tuple[int, NodeSight, Any]]:
        for rank, node in enumerate(self._layout.get("facts", ())):
            if (found := answers.get(agent_name(node.node_id))) is not None:
                yield rank, *found

    def _driver(self, answers: Mapping[str, tuple[Any, Any]]) -> DriverStatus | None:
        if not self._layout:
            return None
        node = self._ranks().get(self._layout["driver_node"])
        state = next((sight.driver for rank, sight, _ in self._sights(answers) if rank == node), "")
        return DriverStatus(pid=self._layout["driver"].pid, node=node, state=state or "unknown")

    def _nodes(
        self, answers: Mapping[str, tuple[Any, Any]], alive: Collection[str] | None, silent: list[str]
    ) -> Iterator[NodeStatus]:
        seen = {rank: sight for rank, sight, _ in self._sights(answers)}
        for rank, facts in enumerate(self._layout.get("facts", ())):
            node, sight = self._layout["nodes"][rank], seen.get(rank)
            state = "up" if sight is not None else "silent"
            if sight is None and alive is not None and facts.node_id not in alive:
                state = "gone"
            if state == "silent":
                silent.append(f"the agent of {node}")
            yield NodeStatus(
                rank=rank,
                host=" ".join(filter(None, (node.ip, node.hostname))),
                accelerators=node.accelerators.count,
                state=state,
                machine=None if sight is None else sight.machine,
            )

    def _shown_plans(self) -> list[Plan]:
        digests = dict.fromkeys(self._current(group["plan"]) for group in self._groups.values())
        found = [self._plans[digest] for digest in digests if digest in self._plans]
        return found or list(self._plans.values())[-1:]

    def _current(self, digest: str) -> str:
        return self._became.get(digest, digest)

    def _processes(self, answers: Mapping[str, tuple[Any, Any]]) -> Iterator[ProcessStatus]:
        seen: dict[tuple[str, Process], ProcessSight] = {}
        for rank, sight, asked in self._sights(answers):
            node_id = self._layout["facts"][rank].node_id
            seen |= {
                (node_id, process): one for (process, _), one in zip(asked, sight.processes, strict=True)
            }
        running: dict[tuple[str, str], list[str]] = {}
        for name, group in self._groups.items():
            running.setdefault((self._current(group["plan"]), group["component"]), []).append(name)
        ended = {(self._current(digest), component) for digest, component in self._ended}
        for plan in self._shown_plans():
            for component, part in plan.components.items():
                names = running.pop((plan.digest, component), [])
                for name in names:
                    yield from self._group(name, seen)
                if not names and not part.runs_nothing:
                    state = "ended" if (plan.digest, component) in ended else "not started"
                    yield from (absent_status(component, place, state) for place in part.members)
        for names in running.values():  # groups of plans that are not known yet
            for name in names:
                yield from self._group(name, seen)

    def _starting(self, there: Collection[str]) -> int:
        """How many of these actors are workers of groups that the managers do not know yet."""
        agents = {agent_name(node.node_id) for node in self._layout.get("facts", ())}
        workers = [name for name in there if name not in agents and not name.startswith(_HOSTS)]
        named = [name.rpartition(":") for name in workers]
        return sum(rank.isdecimal() and group not in self._groups for group, _, rank in named)

    def _group(self, name: str, seen: Mapping[tuple[str, Process], ProcessSight]) -> Iterator[ProcessStatus]:
        group, ranks = self._groups[name], self._ranks()
        for place, report, generation in zip(
            group["placements"], group["reports"], group["generations"], strict=True
        ):
            sight = seen.get((report.node_id, report.process), ProcessSight(state="unknown"))
            yield seen_status(
                group["component"],
                place,
                group=name,
                state=sight.state,
                node=ranks.get(report.node_id),
                pid=report.process.pid,
                generation=generation,
                visible=report.visible or "",
                calls=sight.calls,
            )


def _alive_nodes(silent: list[str], within: float) -> set[str] | None:
    """The ids of the living nodes; None if Ray's head does not answer."""
    try:
        return {node["NodeID"] for node in living_nodes(within)}
    except NoAnswer:
        silent.append("the head of Ray")
        return None


class JobsReader:
    """Reads one job again and again, or all jobs of the cluster side by side."""

    def __init__(self, only: str | None = None) -> None:
        self.only = only
        self._readers: dict[str, JobReader] = {}
        self._last: dict[str, JobSnapshot] = {}

    def read(self, within: float = LOOK_WITHIN) -> list[JobSnapshot]:
        """Snapshots of the jobs. The job `only` is still shown after its end; raises if it was never there."""
        names = [self.only] if self.only is not None else running_jobs(within)
        self._readers = {name: self._readers.get(name) or JobReader(name) for name in names}
        most = max(1, min(MOST_AT_ONCE, len(names)))
        with ThreadPoolExecutor(most, thread_name_prefix=f"{OWN_THREADS}reader") as pool:
            found = list(pool.map(lambda name: self._read(name, within), names))
        jobs = [one for one in found if one is not None]
        self._last = {one.job: one for one in jobs}
        return jobs

    def _read(self, job: str, within: float) -> JobSnapshot | None:
        try:
            return self._readers[job].read(within)
        except JobEnded:
            del self._readers[job]  # it knows that run; the job may be started again
            if job in self._last:
                return replace(self._last[job], time=time.time(), state="ended", silent=())
            if self.only is not None:
                raise
            return None
