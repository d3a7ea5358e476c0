"""What the supervisor decides, and what holds whatever happens."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from roost.config.supervise import CAUSES, RestartLimits, RestartPolicy
from roost.engine.events import Standing
from roost.engine.supervision.supervisor import Action, Failure, GiveUp, Keep, Restart, Supervisor

EACH = RestartLimits(crash=2, hang=1, node_lost=1, out_of_memory=0, failed_start=1)


def supervised(policy: str, on_robots: bool = False, within: float = 60.0) -> Supervisor:
    made = Supervisor()
    kind: Any = policy
    made.cover("actor", 4, RestartPolicy(policy=kind, restarts=EACH, within=within), on_robots)
    return made


def died(rank: int, generation: int = 0, cause: str = "crash", component: str = "actor") -> list[Failure]:
    return [Failure(component=component, cause=cause, generations={rank: generation})]


def test_fail_only_tells() -> None:
    assert supervised("fail").failed(died(2), 0) == [Keep(component="actor", ranks=(2,), cause="crash")]


def test_robots_never_restart_by_themselves() -> None:
    for policy in ("one_for_one", "one_for_all", "relocate"):
        for cause in CAUSES:
            (action,) = supervised(policy, on_robots=True).failed(died(1, cause=cause), 0)
            assert isinstance(action, Keep)


def test_one_for_one_restarts_that_rank_and_one_for_all_the_group() -> None:
    (one,) = supervised("one_for_one").failed(died(2), 0)
    (everyone,) = supervised("one_for_all").failed(died(2), 0)
    assert (one.ranks, everyone.ranks) == ((2,), (0, 1, 2, 3))


def test_a_crash_loop_ends_after_exactly_the_allowed_restarts() -> None:
    machine = supervised("one_for_one")
    for generation in range(2):
        (action,) = machine.failed(died(1, generation), generation)
        assert isinstance(action, Restart)
        assert (action.number, action.limit) == (generation + 1, 2)
        machine.started("actor", {1: generation + 1})
    (action,) = machine.failed(died(1, 2), 2)
    assert isinstance(action, GiveUp)
    assert machine.given_up("actor") == "crash: 2 restarts for this cause within 60 s, of 2 allowed"
    assert [type(one) for one in machine.failed(died(0), 3)] == [Keep]


def test_causes_have_budgets_of_their_own_and_periods_end() -> None:
    machine = supervised("one_for_one")
    assert isinstance(machine.failed(died(0), 0)[0], Restart)
    assert isinstance(machine.failed(died(1, cause="hang"), 0)[0], Restart)
    assert isinstance(machine.failed(died(2), 0)[0], Restart)
    machine.started("actor", {0: 1, 1: 1, 2: 1})
    assert isinstance(machine.failed(died(0, 1), 60)[0], Restart)
    assert isinstance(machine.failed(died(3, cause="out of memory"), 60)[0], GiveUp)


def test_answers_that_come_late_change_nothing() -> None:
    """Of ranks that nobody restarts, and of components that were shut down meanwhile."""
    machine = supervised("relocate")
    assert machine.not_started("actor", [0, 1], 0) == []
    assert machine.cannot_move("actor", [0, 1], "no spare node") == []
    assert machine.given_up("actor") == ""
    assert machine.settled("actor")
    assert isinstance(machine.failed(died(0), 1)[0], Restart)  # it counted as up all the time
    (again,) = machine.not_started("actor", [0, 1], 2)
    assert again.ranks == (0,)
    (gone,) = machine.cannot_move("actor", [0, 1], "no spare node")
    assert gone.ranks == (0,)
    assert machine.settled("actor")  # nobody waits for what was given up
    machine.drop("actor")
    machine.started("actor", {0: 1})
    assert machine.not_started("actor", [0], 3) == machine.cannot_move("actor", [0], "") == []


def test_what_was_given_up_is_taken_up_again_when_all_ranks_run() -> None:
    machine = supervised("one_for_one")
    for rank in (0, 1):
        machine.failed(died(rank, cause="out of memory"), 0)
    machine.ending("actor", [0])  # by hand, one after the other
    machine.started("actor", {0: 1})
    assert machine.given_up("actor")
    machine.ending("actor", [1, 2])
    machine.started("actor", {1: 1})
    assert machine.given_up("actor")
    machine.started("actor", {2: 1})
    assert machine.given_up("actor") == ""


def test_a_rank_that_hangs_has_not_ended() -> None:
    machine = supervised("fail")
    machine.failed(died(0, cause="hang"), 0)
    machine.failed(died(1), 0)
    assert machine.standing("actor") == Standing(down={1: 0})
    machine.failed(died(0), 1)
    assert machine.standing("actor") == Standing(down={0: 0, 1: 0})


def test_a_failed_start_has_its_own_budget() -> None:
    machine = supervised("one_for_all")
    assert isinstance(machine.failed(died(0), 0)[0], Restart)
    (again,) = machine.not_started("actor", range(4), 1)
    assert isinstance(again, Restart)
    assert again.cause == "failed start"
    assert isinstance(machine.not_started("actor", range(4), 2)[0], GiveUp)


def test_a_rank_whose_node_is_lost_while_it_restarts_is_moved() -> None:
    machine = supervised("relocate")
    (first,) = machine.failed(died(0), 0)
    assert isinstance(first, Restart)
    assert not first.move
    (second,) = machine.not_started("actor", [0], 1, "node lost")
    assert isinstance(second, Restart)
    assert (second.move, second.cause, second.number) == (True, "node lost", 1)
    machine = supervised("one_for_one")
    machine.failed(died(0), 0)
    (second,) = machine.not_started("actor", [0], 1, "node lost")
    assert isinstance(second, GiveUp)


def test_old_news_leads_to_nothing() -> None:
    machine = supervised("one_for_all")
    machine.failed(died(2), 0)
    assert machine.failed(died(0), 0) == []  # ended by the restart
    machine.started("actor", dict.fromkeys(range(4), 1))
    assert machine.failed(died(3, 0), 1) == []  # an earlier generation
    assert machine.failed(died(0, 1, component="unknown"), 1) == []


@pytest.mark.parametrize("policy", ["fail", "one_for_one"])
def test_a_rank_that_hung_and_goes_on_is_up_again(policy: str) -> None:
    machine = supervised(policy)
    if policy == "one_for_one":  # the one restart that is allowed
        assert isinstance(machine.failed(died(1, cause="hang"), 0)[0], Restart)
        machine.started("actor", {1: 1})
    for _ in range(2):
        assert len(machine.failed(died(2, cause="hang"), 1)) == 1
        assert machine.resumed("actor", {2: 1}) == ()  # no such generation
        assert machine.resumed("actor", {2: 0}) == (2,)
        assert machine.resumed("actor", {2: 0}) == ()
        assert machine.given_up("actor") == ""
    assert len(machine.failed(died(2), 2)) == 1
    assert machine.resumed("actor", {2: 0}) == ()  # it died


def test_a_rank_that_hangs_may_end() -> None:
    machine = supervised("fail")
    machine.failed(died(2, cause="hang"), 0)
    assert machine.failed(died(2, cause="hang"), 1) == []
    assert machine.failed(died(2), 2) == [Keep(component="actor", ranks=(2,), cause="crash")]
    assert machine.failed(died(2), 3) == machine.failed(died(2, cause="hang"), 3) == []


def test_a_hung_rank_that_is_restarted_does_not_go_on() -> None:
    machine = supervised("one_for_one")
    machine.failed(died(2, cause="hang"), 0)
    assert machine.resumed("actor", {2: 0}) == machine.resumed("unknown", {2: 0}) == ()
    assert not machine.settled("actor")
    machine = supervised("fail")
    machine.failed(died(2, cause="hang"), 0)
    machine.ending("actor", [2])  # by hand
    assert machine.resumed("actor", {2: 0}) == ()


def test_a_lost_node_is_one_incident_and_only_relocate_moves() -> None:
    lost = [Failure(component="actor", cause="node lost", generations={0: 0, 1: 0})]
    (move,) = supervised("relocate").failed(lost, 0)
    assert (move.ranks, move.move) == ((0, 1), True)
    for policy in ("one_for_one", "one_for_all"):
        (action,) = supervised(policy).failed(lost, 0)
        assert isinstance(action, GiveUp)
    machine = supervised("relocate")
    machine.failed(lost, 0)
    assert isinstance(machine.cannot_move("actor", (0, 1), "no spare node is left")[0], GiveUp)


def test_what_is_ended_on_purpose_is_no_failure_and_restarting_by_hand_clears_a_giving_up() -> None:
    machine = supervised("one_for_one")
    machine.ending("actor", [1])
    assert machine.failed(died(1), 0) == []
    machine.started("actor", {1: 1})
    machine.failed(died(0, cause="out of memory"), 0)
    assert machine.given_up("actor")
    machine.ending("actor", [0])
    machine.started("actor", {0: 1})
    assert not machine.given_up("actor")


@pytest.mark.parametrize("policy", ["one_for_one", "one_for_all"])
def test_a_component_that_was_shut_down_is_left_alone(policy: str) -> None:
    machine = supervised(policy)
    machine.failed(died(0), 0)
    machine.drop("actor")
    assert machine.not_started("actor", [0], 1) == []
    assert machine.failed(died(1), 1) == []


class Schedules(RuleBasedStateMachine):
    """A cluster that does what it is told, and fails in any order. It keeps the books the supervisor is held to."""

    @initialize(
        policy=st.sampled_from(["fail", "one_for_one", "one_for_all", "relocate"]),
        limits=st.builds(RestartLimits, *[], **{name: st.integers(0, 3) for name in RestartLimits.__slots__}),
        robots=st.booleans(),
        size=st.integers(1, 4),
    )
    def start(self, policy: Any, limits: RestartLimits, robots: bool, size: int) -> None:
        self.policy = RestartPolicy(policy=policy, restarts=limits, within=10.0)
        self.robots, self.size, self.now = robots, size, 0.0
        self.machine = Supervisor()
        self.machine.cover("actor", size, self.policy, robots)
        self.generation = dict.fromkeys(range(size), 0)
        self.alive = set(range(size))
        self.hung: set[int] = set()  # those that hang and are left alone
        self.restarting: list[Restart] = []
        self.made: dict[str, list[float]] = {}
        self.gave_up = False

    def obey(self, actions: list[Action], failed: set[int]) -> None:
        for action in actions:
            if isinstance(action, GiveUp):
                self.gave_up = True
                continue
            if isinstance(action, Keep):
                continue
            assert not self.robots
            assert self.policy.policy != "fail"
            assert not self.gave_up, "nothing is restarted after it was given up"
            busy = {rank for other in self.restarting for rank in other.ranks}
            assert busy.isdisjoint(action.ranks), "a rank is never started twice at once"
            expected = set(range(self.size)) if self.policy.policy == "one_for_all" else failed
            assert set(action.ranks) == expected
            assert action.move == (action.cause == "node lost")
            times = self.made.setdefault(action.cause, [])
            times.append(self.now)
            recent = [time for time in times if self.now - time < self.policy.within]
            assert len(recent) <= self.policy.restarts.of(action.cause), "the limit of its cause"
            self.alive.difference_update(action.ranks)
            self.hung.difference_update(action.ranks)
            self.restarting.append(action)

    @rule(seconds=st.floats(0, 12))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), cause=st.sampled_from([cause for cause in CAUSES if cause != "failed start"]))
    def fail(self, data: st.DataObject, cause: str) -> None:
        ranks = data.draw(st.sets(st.sampled_from(sorted(self.alive)), min_size=1))
        self.alive -= ranks
        failure = Failure(component="actor", cause=cause, generations={r: self.generation[r] for r in ranks})
        actions = self.machine.failed([failure], self.now)
        assert len(actions) == 1, "every incident is answered once"
        self.obey(actions, ranks)
        if cause == "hang" and not isinstance(actions[0], Restart):
            self.hung |= ranks
        assert self.machine.failed([failure], self.now) == [], "the same news twice"

    @precondition(lambda self: self.hung)
    @rule(data=st.data(), ends=st.booleans())
    def go_on_or_end(self, data: st.DataObject, ends: bool) -> None:
        rank = data.draw(st.sampled_from(sorted(self.hung)))
        self.hung.discard(rank)
        if ends:
            (action,) = self.machine.failed(died(rank, self.generation[rank]), self.now)
            assert isinstance(action, Keep)
        else:
            assert self.machine.resumed("actor", {rank: self.generation[rank]}) == (rank,)
            self.alive.add(rank)
            self.take_up_again()

    @rule(data=st.data())
    def repeat_old_news(self, data: st.DataObject) -> None:
        rank = data.draw(st.integers(0, self.size - 1))
        if self.generation[rank]:
            old = data.draw(st.integers(0, self.generation[rank] - 1))
            assert self.machine.failed(died(rank, old), self.now) == []

    @precondition(lambda self: self.restarting)
    @rule(data=st.data())
    def finish_restart(self, data: st.DataObject) -> None:
        done = self.restarting.pop(data.draw(st.integers(0, len(self.restarting) - 1)))
        for rank in done.ranks:
            self.generation[rank] += 1
        self.machine.started("actor", {rank: self.generation[rank] for rank in done.ranks})
        self.alive.update(done.ranks)
        self.take_up_again()

    def take_up_again(self) -> None:
        if not self.restarting and len(self.alive) == self.size:
            self.gave_up = False

    @precondition(lambda self: self.restarting)
    @rule(data=st.data(), cause=st.sampled_from(["failed start", "node lost"]))
    def fail_restart(self, data: st.DataObject, cause: str) -> None:
        failed = self.restarting.pop(data.draw(st.integers(0, len(self.restarting) - 1)))
        actions = self.machine.not_started("actor", failed.ranks, self.now, cause)
        assert len(actions) == 1
        self.obey(actions, set(failed.ranks))

    @invariant()
    def settled_means_that_nothing_is_on_its_way(self) -> None:
        if hasattr(self, "machine"):
            assert self.machine.settled("actor") == (not self.restarting)


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(
    max_examples=int(os.environ.get("ROOST_EXAMPLES", "100")), stateful_step_count=25
)
