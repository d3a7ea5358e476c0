"""Follows what the agents of a job report, and lets the supervisor decide.

One thread of the process that launched the groups waits for news of all nodes at once. Restarts run in other threads,
so that a slow one delays no other news.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import ray

from roost.engine.backend import GroupOrder
from roost.engine.connection.actors import answer
from roost.engine.connection.cluster_watch import ask_head, check_head, cluster_is_gone
from roost.engine.events import Event, Standing
from roost.engine.job.open_jobs import check_order
from roost.engine.job.worker_watch import Loss, WatchedWorker, loss_event
from roost.engine.processes.process_facts import Process
from roost.engine.ray_backend.ray_workers import RayWorkers
from roost.engine.ray_backend.recovery import Launched, Recovery, Watched, outlook, verb
from roost.engine.supervision.supervisor import Action, Failure
from roost.errors import JobTakenDown, NoAnswer, RoostError
from roost.planning.plan import Plan
from roost.planning.policy_checks import on_robots

if TYPE_CHECKING:
    from roost.engine.ray_backend.ray_backend import RayBackend

LOOK_EVERY = 1.0  # seconds between two looks at Ray's table of nodes
HEAD_WITHIN = 2.0  # seconds that such a look may take
SUSPECT_EVERY = 0.2  # the same, while the agent of a node does not answer
SUSPECT_FOR = 30.0
SUCCEEDS_AFTER = 1.0  # seconds after the death of an agent
MOST_SUCCESSIONS = 3  # agents of one node that replace a dead one
MOST_EARLY = 10_000  # losses that are kept until the start of their processes is recorded
CAUSE_WITHIN = 1.0  # seconds in which Ray says whether it killed a process for want of memory
NEWS_WITHIN = 2.0  # seconds that an error of a call waits for the news of the process's end


class JobWatch:
    def __init__(self, job: RayBackend, groups: Mapping[str, tuple[GroupOrder, RayWorkers]]) -> None:
        self._job, self._watched = job, Watched(groups=groups, note=job.note_standings)
        self._recovery = Recovery(job, self._watched, self._follow)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._seen: dict[int, int] = {}  # losses of each node that is followed
        # Nodes whose agent does not answer, and until when that is looked at.
        self._suspects: dict[int, float] = {}
        self._ask_again: set[int] = set()  # nodes whose agent may only have been out of reach
        self._losses: dict[Process, tuple[Loss, str]] = {}  # with what is done about them
        self._undecided: list[Loss] = []
        self._awaited: set[Process] = set()  # lost, or dead by Ray's word, and not decided about yet
        self._early: dict[Process, Loss] = {}  # of processes whose start is not recorded yet
        self._successions: Counter[int] = Counter()  # of agents, by node
        self._thread: threading.Thread | None = None

    # -- groups ----------------------------------------------------------------------------------------

    def cover(self, plan: Plan, orders: Sequence[GroupOrder]) -> None:
        """Watch groups that have just started."""
        launched = Launched(plan, {order.component.name: order.name for order in orders})
        nodes: set[int] = set()
        with self._watched.changing(*launched.names.values()) as supervisor:
            for order in orders:
                supervisor.cover(order.name, len(order.placements), order.policy, on_robots(order.component))
                self._watched.launched[order.name] = launched
                nodes.update(place.cluster_node_rank for place in order.placements)
                self._follow_up(order.name)
        for node in sorted(nodes):
            self._follow(node)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="roost-watch", daemon=True)
            self._thread.start()

    def drop(self, name: str) -> None:
        with self._watched.changing(name) as supervisor:
            supervisor.drop(name)
            self._watched.launched.pop(name, None)

    def ending(self, name: str, ranks: Sequence[int]) -> None:
        with self._watched.changing(name) as supervisor:
            supervisor.ending(name, ranks)

    def stopped(self, name: str, ranks: Sequence[int]) -> None:
        self._watched.stopped(name, ranks)

    def started(self, name: str, generations: Mapping[int, int]) -> None:
        with self._watched.changing(name) as supervisor:
            supervisor.started(name, generations)
            self._follow_up(name)

    def _follow_up(self, name: str) -> None:
        """A process may end before its start is recorded."""
        for process, loss in list(self._early.items()):
            if loss.worker is not None and loss.worker.group == name:
                self._inbox.put(self._early.pop(process))

    @property
    def lost_nodes(self) -> set[int]:
        return set(self._watched.lost)

    def given_up(self, name: str) -> str:
        with self._watched.news:
            return self._watched.supervisor.given_up(name)

    def wait_recovered(self, name: str, timeout: float) -> tuple[bool, Standing]:
        """Whether every restart of a group is over in time, also of processes that only Ray calls dead so far."""
        with self._watched.news:
            done = self._watched.news.wait_for(
                lambda: (
                    self._watched.closed
                    or (self._watched.supervisor.settled(name) and not self._awaits_news(name))
                ),
                timeout,
            )
            return done, self._watched.supervisor.standing(name) or Standing()

    def _awaits_news(self, name: str) -> bool:
        known = self._watched.groups.get(name)
        current = {report.process for report in known[1].reports.values()} if known else set()
        return not current.isdisjoint(self._awaited)

    def news_of(self, process: Process, is_replaced: Callable[[], bool]) -> tuple[Loss, str] | None:
        """How a process was lost, and what is done about it: nothing if roost ended it.

        Waits a moment: a call may fail before that is known. There is no more news of a process that is replaced.
        """
        for _ in range(2):
            with self._watched.news:
                if self._watched.news.wait_for(
                    lambda: self._watched.closed or process in self._losses or is_replaced(), NEWS_WITHIN
                ):
                    return self._losses.get(process)
            self._inbox.put(process)  # Ray calls it dead, and its end takes long, as of one with much memory
        with self._watched.news:
            if process not in self._losses:
                self._awaited.add(process)
        return None

    def closing(self) -> None:
        """Follow no more news, and start no more restarts."""
        with self._watched.news:
            self._watched.closed = True
            self._watched.news.notify_all()
        self._inbox.put(None)

    def close(self) -> None:
        """Wait for the threads. Restarts that are under way end with their groups."""
        self.closing()
        if cluster_is_gone():  # they may be asking it
            return
        me = threading.current_thread()
        for thread in (self._thread, *self._recovery.threads):
            if thread is not None and thread is not me:
                thread.join(5.0)

    # -- news ------------------------------------------------------------------------------------------

    def _follow(self, node: int) -> None:
        if node not in self._seen:
            self._seen[node] = 0
            self._ask(node)

    def _ask(self, node: int) -> None:
        reference = self._job.live[node].agent.next_losses.remote(self._seen[node])
        reference.future().add_done_callback(lambda answer: self._inbox.put((node, answer)))

    def _run(self) -> None:
        looked = time.monotonic()
        while not self._watched.closed:
            every = SUSPECT_EVERY if self._suspects else LOOK_EVERY
            with contextlib.suppress(queue.Empty):
                news = [self._inbox.get(timeout=max(0.0, looked + every - time.monotonic()))]
                while not self._inbox.empty():
                    news.append(self._inbox.get())
                self._recovery.guarded(partial(self._receive, [one for one in news if one is not None]))
            if not self._watched.closed and time.monotonic() - looked >= every:
                looked = time.monotonic()
                self._recovery.guarded(self._look_at_nodes)
                self._recovery.guarded(self._decide)

    def _receive(self, news: Sequence[Any]) -> None:
        for one in news:
            if isinstance(one, Process):
                self._take_up(self._dead_for_ray(one))
            elif isinstance(one, Loss):
                self._take_up(self._known([one]))
            else:
                self._recovery.guarded(partial(self._answered, *one))
        self._decide()

    def _answered(self, node: int, answer: Any) -> None:
        if (error := answer.exception()) is not None:
            self._suspects.setdefault(node, time.monotonic() + SUSPECT_FOR)
            if not isinstance(error, ray.exceptions.ActorDiedError):
                self._ask_again.add(node)
            elif node not in self._watched.lost and self._successions[node] < MOST_SUCCESSIONS:
                self._successions[node] += 1
                self._recovery.start_thread(partial(self._replace_agent, node), "roost-agent")
            return
        self._suspects.pop(node, None)
        found = answer.result()
        self._take_up(self._known(found))
        self._seen[node] += len(found)
        self._ask(node)
        if any(loss.kind == "node" for loss in found):
            self._node_lost({node})

    def _take_up(self, losses: Sequence[Loss]) -> None:
        with self._watched.news:
            self._undecided += losses
            ended = {loss.worker.process for loss in losses if loss.worker and loss.kind != "resumed"}
            self._awaited |= ended

    def _decide(self) -> None:
        """Decide about the losses taken up. They wait while the head cannot say whether the job was taken down."""
        if not self._undecided:
            return
        try:
            check_order(self._job.job)
        except JobTakenDown:  # they were ended on purpose
            self.closing()
            return
        causes = causes_of(self._undecided, self._watched.groups)
        losses, self._undecided = self._undecided, []
        for loss, cause in zip(losses, causes, strict=True):
            self._recovery.guarded(partial(self._lose, loss, cause))

    def _dead_for_ray(self, process: Process) -> list[Loss]:
        """The loss of a process that Ray has given up, although it has not ended yet."""
        for _, workers in list(self._watched.groups.values()):
            for rank, report in list(workers.reports.items()):
                if report.process == process:
                    return [Loss(kind="ended", worker=workers.watched(rank), seen=time.time())]
        return []

    def _replace_agent(self, node: int) -> None:
        """Start another agent on a node whose agent has died, and let it watch the workers there."""
        with self._watched.news:  # all agents end with the job, or with a program that disconnects
            if self._watched.news.wait_for(lambda: self._watched.closed, SUCCEEDS_AFTER):
                return
        if not ray.is_initialized():  # Ray would start a cluster of its own
            return
        live = self._job.live[node]
        try:
            check_head()
            check_order(self._job.job)
            agent = self._job.replace_agent(node)
            if self._watched.closed:  # the end of the job may not have seen it
                ray.kill(agent)
                return
            answer(agent.follow.remote([]), "starting another agent", SUSPECT_FOR)
        except (RoostError, ray.exceptions.RayError):  # the node is lost as well, or the job ends
            return
        self._job.live[node] = replace(live, agent=agent)
        detail = "roost's agent there ended; another one watches its workers"
        self._recovery.tell([Event(action="reported", node=node, cause="crash", detail=detail)])
        # A process that starts from now on is followed by the new agent. The others:
        known = [
            (workers.watched(rank), report.call_log)
            for _, workers in list(self._watched.groups.values())
            for rank, report in list(workers.reports.items())
            if report.node_id == live.node_id
        ]
        answer(agent.follow.remote(known, self._job.history), "following the workers", SUSPECT_FOR)
        self._seen[node] = 0
        self._suspects.pop(node, None)
        self._ask(node)

    def _known(self, found: Iterable[Loss]) -> list[Loss]:
        """The losses of current processes. Keeps those of processes whose start is not recorded yet."""
        current = []
        with self._watched.news:
            for loss in found:
                worker = loss.worker
                if worker is None:
                    continue
                if self._watched.supervisor.is_ahead(worker.group, worker.rank, worker.generation):
                    self._early[worker.process] = loss
                elif self._is_current(loss):
                    current.append(loss)
            while len(self._early) > MOST_EARLY:  # some never become current, as of launches that fail
                del self._early[next(iter(self._early))]
        return current

    def _is_current(self, loss: Loss) -> bool:
        worker = loss.worker
        assert worker is not None
        known = self._watched.groups.get(worker.group)
        report = known[1].reports.get(worker.rank) if known else None
        return report is not None and report.process == worker.process

    def _lose(self, loss: Loss, cause: str) -> None:
        worker = loss.worker
        assert worker is not None
        generations = {worker.rank: worker.generation}
        if loss.kind == "resumed":
            self._resume(loss, generations)
            return
        failure = Failure(component=worker.group, cause=cause, generations=generations)
        with self._watched.changing(worker.group) as supervisor:
            actions = supervisor.failed([failure], time.monotonic())
        if actions:
            self._recovery.tell([loss_event(loss, cause, verb(actions[0]), outlook(actions[0]))])
        self._note({worker.process: loss}, actions)
        self._recovery.carry_out(actions)

    def _resume(self, loss: Loss, generations: Mapping[int, int]) -> None:
        assert loss.worker is not None
        with self._watched.changing(loss.worker.group) as supervisor:
            back = supervisor.resumed(loss.worker.group, generations)
            if back:
                self._losses.pop(loss.worker.process, None)
        if back:
            self._recovery.tell([loss_event(loss, "hang", "resumed")])

    def _note(self, losses: Mapping[Process, Loss], actions: Sequence[Action]) -> None:
        with self._watched.news:
            for process, loss in losses.items():
                if actions or process not in self._losses:  # a second report of a loss decides nothing
                    self._losses[process] = (loss, outlook(actions[0]) if actions else "")
            self._awaited.difference_update(losses)
            self._watched.news.notify_all()

    # -- nodes -----------------------------------------------------------------------------------------

    def _look_at_nodes(self) -> None:
        if cluster_is_gone() or not ray.is_initialized():
            return
        known = {self._job.live[node].node_id: node for node in self._seen}
        with contextlib.suppress(NoAnswer):  # the agents still tell of losses
            if gone := dead_nodes(ask_head(ray.nodes, HEAD_WITHIN), known) - self._watched.lost:
                self._node_lost(gone)
        for node, until in list(self._suspects.items()):
            if node in self._watched.lost:
                del self._suspects[node]
            elif time.monotonic() > until:
                del self._suspects[node]
                detail = "roost's agent there ended; its workers are not watched any more"
                self._recovery.tell([Event(action="reported", node=node, cause="crash", detail=detail)])
            elif node in self._ask_again:
                self._ask_again.discard(node)
                self._ask(node)

    def _node_lost(self, nodes: set[int]) -> None:
        """All ranks of a lost node are one incident of their component."""
        nodes -= self._watched.lost
        self._watched.lost |= nodes
        failures: list[Failure] = []
        lost: dict[str, dict[int, WatchedWorker]] = {}
        for name, (_, workers) in list(self._watched.groups.items()):
            there = [place.rank for place in workers.placements if place.cluster_node_rank in nodes]
            workers.give_up_starting(there)  # where it cannot come to an end
            if there and name in self._watched.launched:
                lost[name] = {rank: workers.watched(rank) for rank in there}
                generations = {rank: workers.generations[rank] for rank in there}
                failures.append(Failure(component=name, cause="node lost", generations=generations))
        with self._watched.changing(*lost) as supervisor:
            actions = supervisor.failed(failures, time.monotonic())
        for action in actions:
            of_component = lost[action.component]
            ended = [of_component[rank] for rank in action.ranks if rank in of_component]
            events = [
                Event(
                    action=verb(action),
                    component=action.component,
                    rank=one.rank,
                    node=one.node,
                    cause="node lost",
                    detail=f"{one.seat}; pid {one.process.pid} was on a node that is gone; {outlook(action)}",
                )
                for one in ended
            ]
            self._recovery.tell(events)
            seen = time.time()
            self._note({one.process: Loss(kind="node", worker=one, seen=seen) for one in ended}, [action])
        self._recovery.carry_out(actions)


def causes_of(losses: Sequence[Loss], groups: Mapping[str, tuple[GroupOrder, RayWorkers]]) -> list[str]:
    """Why each process was lost. Ray is asked, all at once, about those that may have been short of memory."""
    asked: dict[int, Any] = {}
    for index, loss in enumerate(losses):
        killed = loss.kind == "ended" and (loss.status is None or loss.status & 0x7F == 9)
        if killed and not loss.out_of_memory:
            assert loss.worker is not None
            known = groups.get(loss.worker.group)  # None after a shutdown in another thread
            handle = known[1].handles.get(loss.worker.rank) if known else None
            if handle is not None:
                asked[index] = handle._roost_seconds.remote("")
    if asked:
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=CAUSE_WITHIN)
    return [
        "hang"
        if loss.kind in ("hung", "resumed")
        else "out of memory"
        if loss.out_of_memory or (index in asked and _was_short_of_memory(asked[index]))
        else "crash"
        for index, loss in enumerate(losses)
    ]


def dead_nodes(table: Iterable[Mapping[str, Any]], ranks: Mapping[str, int]) -> set[int]:
    """The ranks of the nodes that Ray's node table calls dead.

    A node that the table does not have is not lost: Ray keeps dead nodes in it, and an answer may be incomplete.
    """
    return {ranks[node["NodeID"]] for node in table if node["NodeID"] in ranks and not node["Alive"]}


def _was_short_of_memory(reference: Any) -> bool:
    try:
        ray.get(reference, timeout=0)
    except ray.exceptions.OutOfMemoryError:
        return True
    except ray.exceptions.RayError as error:
        return "running low on memory" in str(error)
    return False
