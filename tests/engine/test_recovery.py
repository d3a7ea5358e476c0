"""Restarts by the watch and by hand, of processes that are not there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError

from roost.config.supervise import RestartPolicy
from roost.engine.events import Event, Standing
from roost.engine.job.managers import WorkerManager
from roost.engine.job.worker_watch import Loss, WatchedWorker
from roost.engine.processes.process_facts import Process
from roost.engine.ray_backend import job_watch, ray_workers, recovery
from roost.engine.ray_backend.job_watch import JobWatch, causes_of
from roost.engine.ray_backend.ray_workers import RayWorkers
from roost.engine.ray_backend.recovery import Launched, Recovery, Watched
from roost.engine.supervision.supervisor import Action, Failure, Restart
from roost.errors import LaunchError, WorkerDied
from roost.planning.relocation import Relocation

pytestmark = pytest.mark.installed


class Node:
    """A node whose agent is asked for news."""

    node_id = "node"

    def __init__(self) -> None:
        self.asked: list[Future[list[Loss]]] = []
        self.agent = SimpleNamespace(next_losses=SimpleNamespace(remote=self._ask))

    def _ask(self, _: int) -> Any:
        self.asked.append(Future())
        return SimpleNamespace(future=lambda: self.asked[-1])


class Start:
    """Starts processes by calling a function."""

    def __init__(self, begin: Callable[..., dict[Any, int]]) -> None:
        self.begin = begin


class Group:
    """Two ranks under `one_for_all`. `starting` is called with the ranks of each start; what it raises fails it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[Event] = []
        self.starts: list[tuple[int, ...]] = []
        self.killed: list[str] = []
        self.starting: Callable[[tuple[int, ...]], None] = lambda _: None
        self.workers: Any = RayWorkers("job", "actor", (), ())
        self.workers.placements = [SimpleNamespace(cluster_node_rank=0)] * 2
        self.workers.generations = {0: 0, 1: 0}
        self.workers.start = Start(self._begin)
        self.workers.started = self._started
        monkeypatch.setattr(ray_workers, "gathered", self._gathered)
        monkeypatch.setattr(ray, "kill", self.killed.append)
        order: Any = None
        self.standings: dict[str, Standing] = {}
        self.groups = {"actor": (order, self.workers)}
        watched = self.watched = Watched(groups=self.groups, note=self.standings.update)
        self.supervisor = watched.supervisor
        self.supervisor.cover("actor", 2, RestartPolicy(policy="one_for_all"))
        self.workers.watch = SimpleNamespace(
            ending=self.supervisor.ending,
            started=self.supervisor.started,
            stopped=watched.stopped,
            lost_nodes=set(),
        )
        job: Any = SimpleNamespace(live=[], record=self.events.extend, restarted=lambda _: None)
        self.recovery = Recovery(job, watched, lambda _: None)

    def _begin(self, ranks: Sequence[int], handles: dict[int, str], _: Any) -> dict[Any, int]:
        self.starts.append(tuple(ranks))
        handles.update({rank: f"rank {rank}" for rank in ranks})
        return {}

    def _gathered(self, *_: Any) -> dict[Start, Any]:
        self.starting(self.starts[-1])
        return {self.workers.start: {}}

    def _started(self, handles: dict[int, str], _: Any) -> None:
        self.workers.generations.update({rank: self.workers.generations[rank] + 1 for rank in handles})

    def crash(self) -> list[Action]:
        """What is decided about the end of rank 1."""
        failure = Failure(component="actor", cause="crash", generations={1: 0})
        return self.supervisor.failed([failure], 0)

    def recover(self, actions: list[Action]) -> None:
        self.recovery.carry_out(actions)
        self.join()

    def join(self) -> None:
        while threads := self.recovery.threads:
            threads[0].join(60)

    def crash_while_restarted_by_hand(self, *ranks: int) -> None:
        """Rank 1 crashes, and before that is followed up, these ranks are being restarted."""
        begun, go = threading.Event(), threading.Event()

        def held(_: tuple[int, ...]) -> None:
            begun.set()
            assert go.wait(60)

        self.starting, actions = held, self.crash()
        by_hand = threading.Thread(target=self.workers.restart, args=(ranks, 1.0))
        by_hand.start()
        assert begun.wait(60)
        self.recovery.carry_out(actions)
        go.set()
        by_hand.join(60)
        self.join()


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    return Group(monkeypatch)


def test_a_restart_waits_for_one_by_hand(group: Group) -> None:
    group.crash_while_restarted_by_hand(0)
    assert group.starts == [(0,), (0, 1)]
    assert [(one.action, one.cause) for one in group.events] == [("restarted", "crash")]
    assert "restart 1 of 3 took" in group.events[0].detail
    assert group.supervisor.settled("actor")
    assert group.supervisor.given_up("actor") == ""


def test_ranks_that_were_all_restarted_by_hand_meanwhile_are_left_alone(group: Group) -> None:
    group.crash_while_restarted_by_hand(0, 1)
    assert group.starts == [(0, 1)]
    assert group.events == []  # `restart_ranks` tells of it
    assert group.supervisor.settled("actor")


def test_a_restart_by_hand_that_fails_is_over(group: Group) -> None:
    def fails(_: tuple[int, ...]) -> None:
        raise LaunchError(code="RE108", what="no weights")

    group.starting = fails
    with pytest.raises(LaunchError, match="no weights"):
        group.workers.restart([0], 1.0)
    assert group.supervisor.settled("actor")
    group.starting = lambda _: None
    group.recover(group.crash())
    assert group.starts == [(0,), (0, 1)]


def test_a_failed_restart_has_a_reason(group: Group) -> None:
    def fails_once(_: tuple[int, ...]) -> None:
        if len(group.starts) == 1:
            raise LaunchError(code="RE108", what="no weights")

    group.starting = fails_once
    group.recover(group.crash())
    assert [one.action for one in group.events] == ["restarting", "restarted"]
    assert group.events[0].detail.startswith("ranks 0, 1: no weights; it is restarted")


@pytest.mark.parametrize("moment", ["created", "ready"])
def test_what_starts_while_its_group_is_shut_down_is_ended(group: Group, moment: str) -> None:
    begin = group.workers.start.begin

    def shut_down(*_: Any) -> None:
        group.workers.running = False

    def begin_and_shut_down(*args: Any) -> Any:
        shut_down()
        return begin(*args)

    if moment == "created":
        group.workers.start.begin = begin_and_shut_down
    else:
        group.starting = shut_down
    with pytest.raises(LaunchError, match="actor was shut down while it started"):
        group.workers.restart([0, 1], 1.0)
    assert group.killed[-2:] == ["rank 0", "rank 1"]


@pytest.mark.parametrize(
    ("error", "asked"),
    [(ActorUnavailableError("out of reach", None), 2), (ActorDiedError(), 1)],
    ids=["out of reach", "dead"],
)
def test_an_agent_that_was_out_of_reach_is_asked_again(
    error: Exception, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node()
    monkeypatch.setattr(job_watch, "SUCCEEDS_AFTER", 0)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": "node", "Alive": True}])
    job: Any = SimpleNamespace(live=[node], note_standings=dict)
    watch = JobWatch(job, {})
    watch._follow(0)
    node.asked[0].set_exception(error)
    for _ in range(2):
        while not watch._inbox.empty():
            watch._receive([watch._inbox.get()])
        watch._look_at_nodes()
    assert len(node.asked) == asked
    assert set(watch._suspects) == {0}
    if asked == 2:
        node.asked[1].set_result([])
        watch._receive([watch._inbox.get()])
        assert not watch._suspects
        assert len(node.asked) == 3  # for the next news


@pytest.mark.parametrize("ending", ["disconnects", "closes its job"])
def test_a_program_that_ends_starts_no_other_agents(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agents end with it. When asked without a connection, Ray would start a cluster of its own."""
    monkeypatch.setattr(job_watch, "SUCCEEDS_AFTER", 0)
    monkeypatch.setattr(ray, "is_initialized", lambda: ending != "disconnects")
    started: list[int] = []
    job: Any = SimpleNamespace(live=[Node()], job="job", replace_agent=started.append, note_standings=dict)
    watch = JobWatch(job, {})
    if ending == "closes its job":
        watch.closing()
    watch._replace_agent(0)
    assert not started


def order_of(group: Group) -> Any:
    return SimpleNamespace(
        name="actor",
        component=SimpleNamespace(name="actor", members=()),
        placements=group.workers.placements,
        policy=RestartPolicy(),
    )


def watch_of(groups: dict[str, Any], nodes: list[Node], events: list[Event]) -> JobWatch:
    job: Any = SimpleNamespace(live=nodes, job="job", record=events.extend, note_standings=dict)
    watch = JobWatch(job, groups)
    watch._thread = threading.current_thread()  # the test reads the news itself
    return watch


def loss_of(group: Group) -> Loss:
    """Rank 1 has ended with exit code 5."""
    process = Process(pid=5, started=5)
    group.workers.reports[1] = SimpleNamespace(process=process)
    worker = WatchedWorker(process=process, group="actor", rank=1, generation=0, node=0)
    return Loss(kind="ended", worker=worker, status=5 << 8)


@pytest.mark.parametrize("recorded", ["by a launch", "by a restart"])
def test_a_process_that_ends_before_its_start_is_recorded_is_announced(group: Group, recorded: str) -> None:
    """Its agent watches it from the moment in which it has started."""
    node, events = Node(), list[Event]()
    groups: dict[str, Any] = {}
    order, watch = order_of(group), watch_of(groups, [node], events)
    generation = 0
    if recorded == "by a restart":
        groups["actor"] = (order, group.workers)
        watch.cover(SimpleNamespace(), [order])  # type: ignore[arg-type]
        watch.ending("actor", [1])
        generation = 1
    watch._follow(0)
    process = Process(pid=5, started=5)
    worker = WatchedWorker(process=process, group="actor", rank=1, generation=generation, node=0)
    group.workers.reports[1] = SimpleNamespace(process=process)
    node.asked[-1].set_result([Loss(kind="ended", worker=worker, status=5 << 8)])
    watch._receive([watch._inbox.get()])
    assert events == []
    if recorded == "by a restart":
        watch.started("actor", {1: 1})
    else:
        groups["actor"] = (order, group.workers)
        watch.cover(SimpleNamespace(), [order])  # type: ignore[arg-type]
    watch._receive([watch._inbox.get_nowait()])
    assert [(one.rank, one.cause, one.action) for one in events] == [(1, "crash", "reported")]


def test_losses_wait_for_a_head_that_cannot_tell_whether_the_job_was_taken_down(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, events, restarts = Node(), list[Event](), [ray.exceptions.RpcError("the head restarts")]
    watch = watch_of({"actor": (order_of(group), group.workers)}, [node], events)
    watch.cover(SimpleNamespace(), [order_of(group)])  # type: ignore[arg-type]
    watch._follow(0)

    def check_order(_: str) -> None:
        if restarts:
            raise restarts.pop()

    monkeypatch.setattr(job_watch, "check_order", check_order)
    node.asked[-1].set_result([loss_of(group)])
    with pytest.raises(ray.exceptions.RpcError):
        watch._receive([watch._inbox.get()])
    assert events == []
    assert watch.wait_recovered("actor", 0) == (False, Standing())
    watch._decide()
    assert [(one.rank, one.action) for one in events] == [(1, "reported")]
    assert watch.wait_recovered("actor", 0) == (True, Standing(down={1: 0}))


def test_times_of_events_are_in_order_whatever_the_clock_of_a_node_says(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, began = Node(), time.time()
    watch = watch_of({"actor": (order_of(group), group.workers)}, [node], group.events)
    watch.cover(SimpleNamespace(), [order_of(group)])  # type: ignore[arg-type]
    group.recovery.tell([Event(action="restarted", component="actor")])
    monkeypatch.setattr(job_watch, "check_order", lambda _: None)
    watch._receive([replace(loss_of(group), seen=began - 3600)])
    assert [one.action for one in group.events] == ["restarted", "reported"]
    assert began <= group.events[0].time <= group.events[1].time


def test_news_that_cannot_be_read_hide_no_other(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, events = [Node(), Node()], list[Event]()
    watch = watch_of({"actor": (order_of(group), group.workers)}, nodes, events)
    watch.cover(SimpleNamespace(), [order_of(group)])  # type: ignore[arg-type]
    for number in (0, 1):
        watch._follow(number)
    monkeypatch.setattr(job_watch, "check_order", lambda _: None)
    unreadable: Any = None
    nodes[0].asked[0].set_result([unreadable])
    nodes[1].asked[0].set_result([loss_of(group)])
    watch._receive([watch._inbox.get(), watch._inbox.get()])
    assert [(one.rank, one.action) for one in events] == [(1, "reported")]
    assert len(nodes[1].asked) == 2  # for the next news


@pytest.mark.parametrize("left", ["the launch", "the group"])
def test_a_group_that_is_shut_down_before_its_move_hides_no_other(
    group: Group, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    def stranded(plan: Any, _: Any, spare: dict[str, Any]) -> Relocation:
        return Relocation(plan=plan, stranded=tuple(spare))

    monkeypatch.setattr(recovery, "relocate", stranded)
    plan: Any = None
    launched = Launched(plan, {"actor": "actor", "gone": "gone"})
    group.watched.launched["actor"] = launched
    group.groups["actor"] = (order_of(group), group.workers)
    if left == "the launch":
        group.watched.launched["gone"] = launched
    else:
        group.groups["gone"] = (order_of(group), group.workers)
    group.supervisor.ending("actor", [1])
    move = Restart(component="gone", ranks=(0,), cause="node lost", number=1, limit=1, move=True)
    group.recovery.carry_out([move, replace(move, component="actor", ranks=(1,))])
    assert [(one.component, one.action) for one in group.events] == [("actor", "given up")]
    assert group.supervisor.settled("actor")


class Attached:
    """A group of another process: rank 0 on node "a", rank 1 on node "b". `steps` happen while it waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[Callable[[], None]] = []
        self.manager = WorkerManager()
        self.alive = {"a": True, "b": True, "c": True}  # nodes
        self.states: dict[str, str | None] = {"a": "running", "b": "running", "c": "running"}  # by node
        self.workers: Any = RayWorkers("job", "actor", (), ())
        self.workers.refresh = self._refresh
        self.runs_on("b", 0)
        monkeypatch.setattr(WorkerManager, "get_proxy", lambda _: self.manager)
        monkeypatch.setattr(ray_workers, "agent_of", lambda _, node: self._agent(node))
        monkeypatch.setattr(ray_workers, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=self._wait))
        monkeypatch.setattr(ray, "nodes", lambda: [{"NodeID": k, "Alive": v} for k, v in self.alive.items()])
        monkeypatch.setattr(ray, "wait", lambda *_, **__: None)
        monkeypatch.setattr(ray, "get", self._get)

    def runs_on(self, node: str, generation: int) -> None:
        """The driver has started rank 1 there."""
        reports = {
            rank: SimpleNamespace(node_id=where, process=Process(pid=5, started=5))
            for rank, where in enumerate(["a", node])
        }
        self.manager._groups["actor"] = {"reports": reports, "generations": {0: 0, 1: generation}}

    def decides(self, **standing: Any) -> None:
        self.manager.note_standings({"actor": Standing(**standing)})

    def _refresh(self, found: dict[str, Any]) -> None:
        self.workers.reports, self.workers.generations = found["reports"], found["generations"]

    def _agent(self, node: str) -> Any:
        return SimpleNamespace(states=SimpleNamespace(remote=lambda _: self.states[node]))

    def _get(self, state: str | None, timeout: float) -> list[str]:
        if state is None:
            raise ActorDiedError
        return [state]

    def _wait(self, _: float) -> None:
        if not self.steps:
            pytest.fail("it waits for more")
        self.steps.pop(0)()

    def recovers(self) -> None:
        assert self.workers.wait_recovered(60)
        assert not self.steps, "it has waited for everything"

    def stays_down(self) -> None:
        with pytest.raises(WorkerDied, match="actor rank 1 is down, and nothing restarts it") as caught:
            self.recovers()
        assert not self.steps, "it has waited for everything"
        assert "in the process that launched it" in caught.value.findings[0].remedy


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> Attached:
    return Attached(monkeypatch)


def test_another_process_waits_for_ranks_of_a_lost_node(attached: Attached) -> None:
    attached.states["b"], attached.alive["b"] = None, False
    attached.steps = [
        lambda: attached.decides(settled=False, down={1: 0}),
        lambda: attached.decides(),
        lambda: attached.runs_on("c", 1),
    ]
    attached.recovers()


def test_another_process_does_not_wait_for_what_stays_down(attached: Attached) -> None:
    attached.states["b"] = "dead"
    attached.decides(down={1: 0})
    attached.stays_down()


def test_another_process_waits_for_the_decision_about_each_death(attached: Attached) -> None:
    """Of a restarted process, although its number and its rank are those of one that died before."""
    attached.states["b"] = "dead"
    attached.runs_on("b", 1)
    attached.decides(down={1: 0})
    attached.steps = [lambda: attached.decides(down={1: 1})]
    attached.stays_down()


def test_another_process_does_not_wait_for_an_agent_that_died_alone(attached: Attached) -> None:
    attached.states["b"] = None
    attached.recovers()


def test_another_process_is_told_what_was_given_up(attached: Attached) -> None:
    attached.states["b"] = "dead"
    attached.decides(given_up="crash: enough", down={1: 0})
    with pytest.raises(WorkerDied, match="given up") as caught:
        attached.recovers()
    assert caught.value.findings[0].why == "crash: enough"


def test_the_driver_lets_others_know_what_it_does(group: Group) -> None:
    group.watched.stopped("actor", [1])
    assert group.standings["actor"] == Standing(down={1: 0})
    with group.watched.changing("actor"):
        group.supervisor.ending("actor", [1])
    assert not group.standings["actor"].settled
    with group.watched.changing("actor"):
        group.supervisor.started("actor", {1: 1})
    assert group.standings["actor"] == Standing()


def test_a_group_that_was_shut_down_meanwhile_hides_no_other_loss() -> None:
    worker = WatchedWorker(process=Process(pid=5, started=5), group="gone", rank=0, generation=0, node=0)
    assert causes_of([Loss(kind="ended", worker=worker)], {}) == ["crash"]


def test_a_rank_of_a_lost_node_is_not_restarted_by_hand(group: Group) -> None:
    group.workers.seats = ["node 0", "node 0"]
    group.workers.watch.lost_nodes = {0}
    with pytest.raises(LaunchError, match="its node is gone"):
        group.workers.restart([0, 1], 1.0)
    assert (group.starts, group.killed) == ([], [])


DIED = Loss(kind="ended", status=9)


@pytest.mark.parametrize(
    ("news", "state", "what", "remedy"),
    [
        (None, "", "died", ""),
        ((DIED, "restart_ranks(1) starts it again"), "", "died", "restart_ranks(1) starts it again"),
        (
            (DIED, "restart_ranks(1) starts it again"),
            "replaced",
            "died",
            "wait_recovered(), then call again; take this_",
        ),
        ((DIED, "it is restarted: wait_recovered(), then call again"), "replaced", "died", "it is restarted"),
        ((DIED, ""), "", "was ended", ""),
        ((DIED, ""), "being restarted", "was ended", "wait_recovered(), then call again"),
        ((DIED, ""), "replaced", "was restarted", "wait_recovered(), then call again; take this_"),
        (None, "replaced", "was restarted", "wait_recovered(), then call again; take this_"),
    ],
)
def test_an_error_says_how_a_process_ended_and_what_helps_now(
    group: Group, news: Any, state: str, what: str, remedy: str
) -> None:
    called = SimpleNamespace(process=Process(pid=5, started=5))
    now = SimpleNamespace(process=Process(pid=6, started=6))
    group.workers.reports[1] = now if state == "replaced" else called
    group.workers._busy = {1} if state == "being restarted" else set()
    group.workers.watch.news_of = lambda *_: news
    ending = group.workers.ending_of(1, called)
    assert ending.what == what
    assert ending.remedy.startswith(remedy)
    assert bool(ending.remedy) == bool(remedy)  # without one, the error says that restart_ranks helps


def test_there_is_no_news_to_wait_for_of_a_replaced_process(group: Group) -> None:
    watch = watch_of({"actor": (order_of(group), group.workers)}, [Node()], [])
    assert watch.news_of(Process(pid=5, started=5), lambda: True) is None


@pytest.mark.parametrize(("cause", "can"), [("crash", True), ("node lost", False)])
def test_what_was_given_up_has_a_remedy_that_works(group: Group, cause: str, can: bool) -> None:
    with pytest.raises(WorkerDied) as caught:
        group.workers._refuse(f"{cause}: enough")
    assert ("restart_ranks() starts it again" in caught.value.findings[0].remedy) == can


@pytest.mark.parametrize(
    ("lost", "remedy"),
    [(set(), "restart_ranks(0, 1) starts them again"), ({0}, "launch it again on the nodes that are left")],
)
def test_a_wait_for_ranks_that_nothing_restarts_raises(group: Group, lost: set[int], remedy: str) -> None:
    watch = group.workers.watch
    watch.lost_nodes, watch.wait_recovered = lost, lambda *_: (True, Standing(down={1: 0, 0: 2}))
    with pytest.raises(WorkerDied) as caught:
        group.workers.wait_recovered(1.0)
    (finding,) = caught.value.findings
    assert finding.what == "actor ranks 0, 1 are down, and nothing restarts them"
    assert finding.remedy == remedy
    assert (caught.value.group, caught.value.rank) == ("actor", 0)


def test_events_about_failed_restarts_hide_secrets(group: Group) -> None:
    def fails(_: tuple[int, ...]) -> None:
        raise LaunchError(code="RE108", what="it failed", why="no model for HF_TOKEN=hf_123456")

    group.starting = fails
    group.recover(group.crash())
    assert "no model for HF_TOKEN=***" in group.events[0].detail
    assert "hf_123456" not in "".join(map(str, group.events))


def test_moves_are_made_one_after_the_other(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    monkeypatch.setattr(group.recovery, "_move", lambda _: held.append(group.recovery._moving.locked()))
    move = Restart(component="actor", ranks=(0,), cause="node lost", number=1, limit=1, move=True)
    group.recovery.carry_out([move])
    assert held == [True]
