"""The processes of a group on Ray: calling them, looking at them, starting some again, ending them."""

from __future__ import annotations

import pickle
import threading
import time
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import ray

from roost.engine.backend import GroupOrder, ProcessFacts
from roost.engine.connection.cluster_watch import ask_head, check_cluster, cluster_is_gone
from roost.engine.connection.discovery import LiveNode
from roost.engine.events import Standing
from roost.engine.job.agents import agent_of
from roost.engine.job.job_folder import StartedProcess
from roost.engine.job.managers import WorkerManager
from roost.engine.job.worker_watch import Loss, WatchedWorker
from roost.engine.job_snapshot import LOOK_WITHIN
from roost.engine.launch_orders import aftermath_of_restart
from roost.engine.processes.process_facts import Process
from roost.engine.ray_backend.ray_result import KnownActor, RayResult, forget_abandoned, once, sweep
from roost.engine.ray_backend.starting import GroupStart, gathered, was_shut_down
from roost.engine.ray_backend.worker_host import StartReport
from roost.engine.workers.arguments import arguments_of, cannot_send, differ_by_rank
from roost.engine.workers.result import CALL_LATER, WAS_RESTARTED, Ending, GroupResult, stays_down
from roost.engine.workers.worker_context import seat_of
from roost.errors import JobEnded, LaunchError, WorkerDied, WorkerError
from roost.inventory.inventory import Inventory
from roost.inventory.nodes import Node
from roost.placement.placement import Placement

if TYPE_CHECKING:
    from roost.engine.ray_backend.job_watch import JobWatch

# The workers this process knows, by actor id. Errors of arguments name them.
_known_actors: weakref.WeakValueDictionary[str, KnownActor] = weakref.WeakValueDictionary()

ENDED_WITHIN = 5.0  # seconds in which an agent should have ended processes
TOLD_WITHIN = 2.0  # seconds in which an agent should know that a group is shut down
LOOK_EVERY = 0.2  # seconds between two looks at restarts of another process
ON_OTHER_NODES = "launch it again on the nodes that are left"
LOSS_WITHIN = 1.0  # seconds in which a node's agent knows how a process ended


class RayWorkers:
    def __init__(
        self,
        job: str,
        name: str,
        placements: Sequence[Placement],
        nodes: Sequence[Node],
        start: GroupStart | None = None,
    ) -> None:
        self.job, self.name, self.running = job, name, True
        self._sit(placements, nodes)
        self.start = start
        self.handles: dict[int, Any] = {}
        self.reports: dict[int, StartReport] = {}
        self.generations: dict[int, int] = {}
        self.watch: JobWatch | None = None  # in the process that launched the group
        self._busy: set[int] = set()  # ranks that are being restarted
        self._guard = threading.Condition()  # of the busy ranks
        # Rank, generation and report of earlier processes.
        self._replaced: list[tuple[int, int, StartReport]] = []
        self._node_of: dict[Process, int] = {}
        self._known: list[KnownActor] = []  # earlier generations too: their errors come later
        self._followed: dict[int, list[Process]] = {}  # whose logs the agents keep, by node

    def _sit(self, placements: Sequence[Placement], nodes: Sequence[Node]) -> None:
        self.placements, self._nodes = tuple(placements), nodes
        self.seats = [seat_of(place, str(nodes[place.cluster_node_rank])) for place in placements]

    @property
    def _live(self) -> Sequence[LiveNode]:
        return self.start.site.live if self.start is not None else ()

    def refresh(self, description: Mapping[str, Any]) -> None:
        """Take over what is new in the description of a group that another process launched."""
        self._sit(description["placements"], self._nodes)
        generations = dict(enumerate(description["generations"]))
        new = [rank for rank, generation in generations.items() if self.generations.get(rank) != generation]
        self.accept(
            {rank: description["workers"][rank] for rank in new},
            {rank: description["reports"][rank] for rank in new},
            {rank: generations[rank] for rank in new},
        )

    def accept(
        self, handles: Mapping[int, Any], reports: Mapping[int, StartReport], generations: Mapping[int, int]
    ) -> None:
        """Note processes that have started."""
        self._replaced += [
            (rank, self.generations[rank], self.reports[rank]) for rank in reports if rank in self.reports
        ]
        # Each was verified to be where its placement was then; ranks may move.
        self._node_of.update(
            {report.process: self.placements[rank].cluster_node_rank for rank, report in reports.items()}
        )
        self.handles.update(handles)
        self.reports.update(reports)
        self.generations.update(generations)
        for rank, handle in handles.items():
            known = KnownActor(self, rank, self.seats[rank], reports[rank])
            self._known.append(known)
            actor = handle._actor_id.hex()
            if self.start is not None or actor not in _known_actors:  # who launched it knows more of its end
                _known_actors[actor] = known

    def description(self, order: GroupOrder) -> dict[str, Any]:
        """What another process needs to find this group."""
        assert self.start is not None
        ranks = range(len(self.placements))
        return {
            "component": order.component.name,
            "plan": self.start.plan,
            "placements": list(self.placements),
            "methods": sorted(order.worker.methods),
            "master_addr": self.start.master_addr,
            "master_port": self.start.master_port,
            "workers": [self.handles[rank] for rank in ranks],
            "pids": [self.reports[rank].process.pid for rank in ranks],
            "reports": [self.reports[rank] for rank in ranks],
            "generations": [self.generations[rank] for rank in ranks],
            "shares": list(order.shares),
            "processes": [self._started_process(rank) for rank in ranks],
        }

    def _started_process(self, rank: int) -> StartedProcess:
        report, node = self.reports[rank], self._node_of[self.reports[rank].process]
        return StartedProcess(
            component=self.name,
            rank=rank,
            generation=self.generations[rank],
            node=node,
            node_id=report.node_id,
            host=str(self._nodes[node].ip or self._nodes[node].hostname),
            pid=report.process.pid,
            started=report.process.started,
            logs=report.logs,
        )

    # -- calls -------------------------------------------------------------------------------------------------

    def processes(self) -> Mapping[int, Any]:
        return dict(self.handles)

    def submit(
        self,
        method: str,
        ranks: Sequence[int],
        args: Any,
        kwargs: Any,
        processes: Mapping[int, Any] | None = None,
    ) -> GroupResult:
        sweep()
        check_cluster(self.job)
        if self.watch is not None and (why := self.watch.given_up(self.name)):
            self._refuse(why)
        called = self.handles if processes is None else processes
        handles = [called[rank] for rank in ranks]
        args = [once(arg) for arg in args]
        kwargs = {key: once(arg) for key, arg in kwargs.items()}
        try:
            if differ_by_rank(args) or differ_by_rank(kwargs.values()):
                mine = [
                    arguments_of(position, len(ranks), args, kwargs, _references, _is_reference)
                    for position in range(len(ranks))
                ]
                refs = [
                    getattr(handle, method).remote(*own, **named)
                    for handle, (own, named) in zip(handles, mine, strict=True)
                ]
            else:
                refs = [getattr(handle, method).remote(*args, **kwargs) for handle in handles]
        except (TypeError, ValueError, pickle.PicklingError) as error:
            raise cannot_send(f"{self.name}.{method}", error.__cause__ or error) from error
        seats = [self.seats[rank] for rank in ranks]
        return RayResult(self.name, method, ranks, seats, refs, handles, _known_actors, self.job)

    def _refuse(self, why: str) -> NoReturn:
        refused = WorkerDied(
            code="RE127",
            what=f"group {self.name!r} was given up",
            why=why,
            remedy="run.events has its history; "
            + (ON_OTHER_NODES if why.startswith("node lost") else "restart_ranks() starts it again"),
        )
        refused.group = self.name
        raise refused

    def ending_of(self, rank: int, report: StartReport) -> Ending:
        """How a process that ran a rank has ended, and what to do about it."""

        def is_replaced() -> bool:
            return self.reports[rank].process != report.process

        if self.watch is None:
            loss, outlook = self._loss_of(report), CALL_LATER
        else:
            loss, outlook = self.watch.news_of(report.process, is_replaced) or (None, "")
            if not outlook and is_replaced():
                return WAS_RESTARTED
            if not outlook and loss is not None:  # roost ended it
                return self._ended_on_purpose(rank)
        if is_replaced() and not outlook.endswith(CALL_LATER):
            outlook = WAS_RESTARTED.remedy
        if loss is None:
            return Ending(remedy=outlook)
        gone = loss.kind == "node"
        how = ": its node is gone" if gone else f": pid {report.process.pid} {loss.how}"
        return Ending(how=how, why=loss.last_words, remedy=outlook)

    def _ended_on_purpose(self, rank: int) -> Ending:
        with self._guard:
            if rank in self._busy:
                return Ending("was ended", why="it is being restarted", remedy=CALL_LATER)
        return Ending("was ended", why="by end_ranks, or by a restart that failed")

    def _loss_of(self, report: StartReport) -> Loss | None:
        try:
            asked = agent_of(self.job, report.node_id).loss_of.remote(report.process, LOSS_WITHIN)
            found: Loss | None = ray.get(asked, timeout=2 * LOSS_WITHIN)
        except (JobEnded, ray.exceptions.RayError):
            return None
        return found

    def wait_recovered(self, timeout: float) -> bool:
        if self.watch is None:
            done, standing = self._wait_attached(timeout)
        else:
            done, standing = self.watch.wait_recovered(self.name, timeout)
        check_cluster(self.job)
        if standing.given_up:
            self._refuse(standing.given_up)
        if done and standing.down:
            raise stays_down(self.name, standing.down, self._remedy_for(standing.down))
        return done

    def _remedy_for(self, down: Iterable[int]) -> str:
        if self.watch is None:
            return "restart_ranks() starts it again in the process that launched it"
        gone = any(self.placements[rank].cluster_node_rank in self.watch.lost_nodes for rank in down)
        return ON_OTHER_NODES if gone else ""

    def _wait_attached(self, timeout: float) -> tuple[bool, Standing]:
        """Wait for restarts that another process carries out: the job's managers know of them.

        Returns whether every restart is over in time. Takes over new processes.
        """
        deadline = time.monotonic() + timeout
        manager = WorkerManager.get_proxy(self.job)
        while True:
            found = manager.get_group(self.name)
            if found is None:
                raise WorkerError(code="RE116", what=f"group {self.name!r} was shut down")
            self.refresh(found)
            standing = manager.get_standing(self.name)
            decided = standing.down.items()
            if standing.settled and all((rank, self.generations[rank]) in decided for rank in self._lost()):
                return True, standing
            if time.monotonic() > deadline:
                return False, Standing()
            time.sleep(LOOK_EVERY)

    def _lost(self) -> list[int]:
        """The ranks whose process has ended. Without an agent that tells, those whose node is gone."""
        by_node: dict[str, list[int]] = {}
        for rank, report in self.reports.items():
            by_node.setdefault(report.node_id, []).append(rank)
        processes = {node: [self.reports[rank].process for rank in ranks] for node, ranks in by_node.items()}
        told = self._told("states", processes, LOOK_WITHIN)
        alive = {node["NodeID"] for node in ask_head(ray.nodes) if node["Alive"]}
        lost: list[int] = []
        for node, ranks in by_node.items():
            states = told.get(node, ["running" if node in alive else "dead"] * len(ranks))
            lost += [rank for rank, state in zip(ranks, states, strict=True) if state == "dead"]
        return lost

    def _told(self, method: str, about: Mapping[str, Sequence[Any]], timeout: float) -> dict[str, Any]:
        """The answers of the nodes' agents. Asks all at once, and waits for none longer than that."""
        asked = {}
        for node_id, things in about.items():
            with suppress(JobEnded):
                asked[node_id] = getattr(agent_of(self.job, node_id), method).remote(things)
        if asked:
            ray.wait(list(asked.values()), num_returns=len(asked), timeout=timeout)
        told = {}
        for node_id, ref in asked.items():
            with suppress(ray.exceptions.RayError):
                told[node_id] = ray.get(ref, timeout=0)
        return told

    # -- looking -----------------------------------------------------------------------------------------------

    def observe(self, timeout: float) -> list[ProcessFacts]:
        """What the agents of the nodes see."""
        current = [(rank, self.generations[rank], report) for rank, report in self.reports.items()]
        processes = sorted([*self._replaced, *current], key=lambda one: one[:2])
        by_node: dict[str, list[StartReport]] = {}
        for _, _, report in processes:
            by_node.setdefault(report.node_id, []).append(report)
        logs = {
            node_id: [(report.process, report.call_log) for report in reports]
            for node_id, reports in by_node.items()
        }
        seen: dict[tuple[str, Process], tuple[str, Any]] = {}
        for node_id, answers in self._told("observe", logs, timeout).items():
            for report, (alive, calls) in zip(by_node[node_id], answers, strict=True):
                seen[node_id, report.process] = ("running" if alive else "dead", calls)
        return [
            ProcessFacts(
                rank=rank,
                pid=report.process.pid,
                generation=generation,
                node=self._node_of[report.process],
                state=seen.get((report.node_id, report.process), ("unknown", ()))[0],
                calls=tuple(seen.get((report.node_id, report.process), ("", ()))[1]),
            )
            for rank, generation, report in processes
        ]

    # -- again, and the end --------------------------------------------------------------------------------------

    def begin(self, ranks: Sequence[int]) -> dict[Any, tuple[GroupStart, int]]:
        assert self.start is not None
        begun = self.start.begin(ranks, self.handles, lambda: self.running)
        if not self.running:  # since the last process was created
            raise was_shut_down(self.name)
        return {ref: (self.start, rank) for ref, rank in begun.items()}

    def restart(self, ranks: Sequence[int], timeout: float) -> None:
        """Restart these ranks by hand. If one fails to start, end all of them; other ranks keep running."""
        if self.watch is not None:
            self._check_nodes(ranks, self.watch.lost_nodes)
        with self._claimed(ranks, wait=0):
            try:
                self._start_anew(ranks, timeout)
            except BaseException:
                if self.watch is not None:
                    self.watch.stopped(self.name, ranks)
                raise

    def _check_nodes(self, ranks: Sequence[int], lost: Collection[int]) -> None:
        """Raise if some of these ranks sit on a lost node, before any of them is ended."""
        for rank in ranks:
            if self.placements[rank].cluster_node_rank in lost:
                raise LaunchError(
                    code="RE108",
                    what=f"{self.name} rank {rank} ({self.seats[rank]}) cannot be restarted",
                    why="its node is gone",
                    remedy="launch on the nodes that are left; the policy relocate moves ranks to spare nodes",
                )

    def recover(self, ranks: Sequence[int], timeout: float) -> bool:
        """Restart these ranks for the watch, once none is being restarted by hand. False if all were restarted so."""
        before = {rank: self.generations[rank] for rank in ranks}
        with self._claimed(ranks, wait=timeout):
            if all(self.generations[rank] != before[rank] for rank in ranks):
                return False
            self._start_anew(ranks, timeout)
        return True

    @contextmanager
    def _claimed(self, ranks: Sequence[int], wait: float) -> Iterator[None]:
        """These ranks are being restarted. Raise if some still are after so many seconds: they would run twice."""
        with self._guard:
            if not self._guard.wait_for(lambda: self._busy.isdisjoint(ranks), wait):
                raise WorkerError(
                    code="RE113",
                    what=f"{self.name}: rank {min(self._busy.intersection(ranks))} is being restarted",
                    remedy="wait for it with wait_recovered()",
                )
            self._busy.update(ranks)
        try:
            yield
        finally:
            with self._guard:
                self._busy.difference_update(ranks)
                self._guard.notify_all()

    def _start_anew(self, ranks: Sequence[int], timeout: float) -> None:
        assert self.start is not None
        aftermath = aftermath_of_restart(ranks, len(self.placements))
        if self.watch is not None:
            self.watch.ending(self.name, ranks)
        self._kill(ranks)
        try:
            found = gathered(self.begin(ranks), timeout, aftermath, lambda _: None)
            self.started({rank: self.handles[rank] for rank in ranks}, found[self.start])
            if not self.running:  # `stop` may not have seen them
                raise was_shut_down(self.name)
        except BaseException as error:
            self._kill(ranks)
            if not self.running and isinstance(error, Exception):  # whatever came of it
                raise was_shut_down(self.name) from None
            raise
        if self.watch is not None:
            self.watch.started(self.name, {rank: self.generations[rank] for rank in ranks})

    def give_up_starting(self, ranks: Sequence[int]) -> None:
        """End those of these ranks that are being restarted; `restart` then fails at once."""
        with self._guard:
            starting = self._busy.intersection(ranks)
        self._kill(sorted(starting))

    def move(self, order: GroupOrder, inventory: Inventory) -> None:
        """Some ranks belong on other nodes from now on; `restart` starts them there."""
        assert self.start is not None
        self.start.order, self.start.inventory = order, inventory
        self._sit(order.placements, inventory.nodes)

    def watched(self, rank: int) -> WatchedWorker:
        """The current process of a rank, as an agent watches it."""
        assert self.start is not None
        return WatchedWorker(
            process=self.reports[rank].process,
            group=self.name,
            rank=rank,
            generation=self.generations[rank],
            node=self.placements[rank].cluster_node_rank,
            seat=self.seats[rank],
            ping=self.start.order.policy.ping,
            logs=self.reports[rank].logs,
        )

    def started(self, handles: Mapping[int, Any], reports: Mapping[int, StartReport]) -> None:
        """Note started ranks, and let the agents of their nodes keep what they log."""
        assert self.start is not None
        self.accept(handles, reports, {rank: self.start.generations[rank] for rank in handles})
        by_node: dict[int, list[Any]] = {}
        for rank, report in reports.items():
            watched = self.watched(rank)
            by_node.setdefault(watched.node, []).append((watched, report.call_log))
        for node, followed in by_node.items():
            self._live[node].agent.follow.remote(followed, self.start.history)
            self._followed.setdefault(node, []).extend(worker.process for worker, _ in followed)

    def end(self, ranks: Sequence[int]) -> None:
        if self.watch is not None:
            self.watch.ending(self.name, ranks)
        killed = self._kill(ranks)
        if killed:  # what is called now is not answered by a process that is just ending
            ray.wait(killed, num_returns=len(killed), timeout=ENDED_WITHIN)
        if self.watch is not None:
            self.watch.stopped(self.name, ranks)

    def _kill(self, ranks: Sequence[int]) -> list[Any]:
        """Returns what is answered once they have ended."""
        by_node: dict[int, list[Process]] = {}
        for rank in ranks:
            if rank in self.handles:
                ray.kill(self.handles[rank])
            if rank in self.reports:
                process = self.reports[rank].process
                by_node.setdefault(self._node_of[process], []).append(process)
        # Ray asks a process to end, and kills it only 5 s later: one that hangs would run beside its successor.
        return [self._live[node].agent.kill.remote(processes) for node, processes in by_node.items()]

    def stop(self) -> None:
        self.running = False
        if self.watch is not None:
            self.watch.drop(self.name)
        handles = list(self.handles.values())
        self.handles.clear()  # the same table: a launch in another thread may still add to it, and stops us again
        if not ray.is_initialized() or cluster_is_gone():
            forget_abandoned()
            return
        sweep()
        # Before the processes end, so that their nodes know that they end in order.
        told = [self._live[node].agent.forget.remote(processes) for node, processes in self._followed.items()]
        if told:
            ray.wait(told, num_returns=len(told), timeout=TOLD_WITHIN)
        for handle in handles:
            ray.kill(handle)
        if self.start is not None:
            self.start.release_port()


def _is_reference(argument: Any) -> bool:
    return isinstance(argument, ray.ObjectRef)


def _references(result: GroupResult) -> Sequence[Any]:
    if not isinstance(result, RayResult):
        return result.wait()
    result.check_connected()
    return result.refs
