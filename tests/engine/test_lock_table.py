"""The rules of locks, without a clock and without Ray."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from remains import is_free

from roost.engine.job.node_agent import NodeAgent
from roost.engine.locks.lock_table import Decision, LockGranted, LockTable, Refused, TimedOut
from roost.engine.processes.process_facts import Owner, Process, process_of

NEVER = float("inf")


def owner(number: int) -> Owner:
    return Owner(process=Process(pid=number, started=1), who=f"process {number}")


@pytest.fixture
def table() -> LockTable:
    return LockTable()


def granted(decisions: Sequence[Decision]) -> list[tuple[str, tuple[Any, ...], int]]:
    assert all(isinstance(one, LockGranted) for one in decisions), decisions
    return [(one.owner.who, one.devices, one.fence) for one in decisions if isinstance(one, LockGranted)]


def is_current(table: LockTable, device: int, fence: int) -> bool:
    """Whether this is the number of the lock that is held on the device now."""
    holding = table.hold_on(device)
    return holding is not None and holding.fence == fence


def test_first_come_first_served(table: LockTable) -> None:
    first, second, third = owner(1), owner(2), owner(3)
    assert granted(table.request(first, [1, 0, 1], 0, NEVER)) == [("process 1", (0, 1), 1)]
    assert table.request(second, [0], 0, NEVER) == []
    assert table.request(third, [0], 0, NEVER) == []
    assert is_current(table, 0, 1)
    assert is_current(table, 1, 1)
    assert granted(table.release(first, 1, 5)) == [("process 2", (0,), 2)]
    assert not is_current(table, 0, 1)
    assert not is_current(table, 1, 1)  # nobody holds it: then no number is current
    assert granted(table.release(second, 2, 6)) == [("process 3", (0,), 3)]


def test_all_devices_together_and_nobody_overtakes(table: LockTable) -> None:
    one, both, late, apart = owner(1), owner(2), owner(3), owner(4)
    table.request(one, [0], 0, NEVER)
    assert table.request(both, [0, 1], 0, NEVER) == []
    assert table.hold_on(1) is None  # nothing is kept while waiting
    assert table.request(late, [1, 2], 0, NEVER) == []  # both of its devices are free, but it came later
    assert granted(table.request(apart, [3], 0, NEVER)) == [("process 4", (3,), 2)]
    assert granted(table.release(one, 1, 0)) == [("process 2", (0, 1), 3)]
    assert granted(table.release(both, 3, 0)) == [("process 3", (1, 2), 4)]


def test_an_old_number_releases_nothing(table: LockTable) -> None:
    first, second = owner(1), owner(2)
    table.request(first, [0], 0, NEVER, hold_for=1)
    table.request(second, [0], 2, NEVER)
    assert table.release(first, 1, 2) == []
    assert table.release(second, 1, 2) == []
    assert is_current(table, 0, 2)


def test_too_late(table: LockTable) -> None:
    first, second, third = owner(1), owner(2), owner(3)
    table.request(first, [0, 1], 10, NEVER)
    table.request(second, [1, 2], 11, 20)
    assert table.request(third, [2], 12, 19) == []
    assert table.tick(18.9) == []
    (late,) = table.tick(19)
    assert isinstance(late, TimedOut)
    assert (late.owner, late.holders, late.ahead) == (third, (), 1)
    (late,) = table.tick(20)
    assert isinstance(late, TimedOut)
    assert [(one.owner.who, one.since) for one in late.holders] == [("process 1", 10)]
    assert (late.ahead, late.now, table.waiting) == (0, 20, ())
    (refused,) = table.request(third, [0], 30, 30)  # no time at all: now or not
    assert isinstance(refused, TimedOut)
    assert granted(table.request(third, [2], 30, 30)) == [("process 3", (2,), 2)]


def test_who_gives_up_keeps_nobody_waiting(table: LockTable) -> None:
    table.request(owner(1), [0], 0, NEVER)
    table.request(owner(2), [0, 1], 0, 5)
    table.request(owner(3), [1], 0, NEVER)
    late, given = table.tick(5)
    assert isinstance(late, TimedOut)
    assert granted([given]) == [("process 3", (1,), 2)]


def test_hold_for(table: LockTable) -> None:
    first, second = owner(1), owner(2)
    table.request(first, [0, 1], 0, NEVER, hold_for=10)
    assert table.tick(50) == []
    assert is_current(table, 0, 1)  # nobody asks, so it goes on
    assert granted(table.request(second, [1], 50, NEVER, hold_for=10)) == [("process 2", (1,), 2)]
    assert not is_current(table, 0, 1)  # the whole lock is gone, not a part of it
    assert not is_current(table, 1, 1)
    assert table.request(first, [1], 51, NEVER) == []
    assert table.tick(59.9) == []
    assert granted(table.tick(60)) == [("process 1", (1,), 3)]


def test_a_lock_that_has_ended_is_kept_until_it_can_be_given_away(table: LockTable) -> None:
    table.request(owner(1), [0], 0, NEVER, hold_for=1)
    table.request(owner(2), [1], 0, NEVER)
    table.request(owner(3), [0, 1], 5, NEVER)
    assert is_current(table, 0, 1)  # the other device is not free, so nothing is taken away
    assert granted(table.release(owner(2), 2, 6)) == []
    table.owner_died(Process(pid=2, started=1), 6)
    assert not is_current(table, 0, 1)
    assert is_current(table, 0, 3)


def test_the_dead_lose_what_they_have_and_what_they_wait_for(table: LockTable) -> None:
    """Pitfall: a dead lock holder wedges everyone."""
    table.request(owner(1), [0], 0, NEVER)
    table.request(owner(2), [0], 0, NEVER)
    table.request(owner(3), [0], 0, NEVER)
    assert table.owner_died(Process(pid=2, started=1), 1) == []
    assert granted(table.owner_died(Process(pid=1, started=1), 2)) == [("process 3", (0,), 2)]
    assert not is_current(table, 0, 1)
    assert table.owner_died(Process(pid=1, started=2), 3) == []


def test_withdrawing(table: LockTable) -> None:
    first, second, third = owner(1), owner(2), owner(3)
    table.request(first, [0], 0, NEVER)
    table.request(second, [0], 0, NEVER)
    table.request(third, [0], 0, NEVER)
    assert table.withdraw(second, 1) == []
    assert granted(table.withdraw(first, 1)) == [("process 3", (0,), 2)]
    assert table.withdraw(first, 1) == []


# -- waiting for oneself ------------------------------------------------------------------------------------


def test_asking_again_is_refused_at_once(table: LockTable) -> None:
    table.request(owner(1), [0, 1], 0, NEVER)
    (refused,) = table.request(owner(1), [1, 2], 0, NEVER)
    assert isinstance(refused, Refused)
    assert refused.mine
    assert refused.holder.devices == (0, 1)
    assert granted(table.request(owner(1), [2], 0, NEVER)) == [("process 1", (2,), 2)]


def test_waiting_for_each_other_is_refused(table: LockTable) -> None:
    table.request(owner(1), [0], 0, NEVER)
    table.request(owner(2), [1], 0, NEVER)
    table.request(owner(3), [2], 0, NEVER)
    assert table.request(owner(1), [1], 0, NEVER) == []
    assert table.request(owner(2), [2], 0, NEVER) == []
    (refused,) = table.request(owner(3), [0], 0, NEVER)
    assert isinstance(refused, Refused)
    assert not refused.mine
    assert refused.holder.owner.who == "process 1"


def test_a_lock_that_ends_by_itself_may_be_waited_for(table: LockTable) -> None:
    table.request(owner(1), [0], 0, NEVER)
    table.request(owner(2), [1], 0, NEVER, hold_for=5)
    assert table.request(owner(2), [0], 0, NEVER) == []
    assert table.request(owner(1), [1], 0, NEVER) == []
    assert granted(table.tick(5)) == [("process 1", (1,), 3)]


def test_nor_does_it_matter_further_away(table: LockTable) -> None:
    table.request(owner(1), [0], 0, NEVER)
    table.request(owner(2), [1], 0, NEVER, hold_for=5)
    table.request(owner(3), [2], 0, NEVER)
    assert table.request(owner(2), [0], 0, NEVER) == []
    assert table.request(owner(3), [1], 0, NEVER) == []
    assert table.request(owner(1), [2], 0, NEVER) == []
    assert granted(table.tick(5)) == [("process 3", (1,), 4)]


def test_who_is_waited_for_need_not_wait_for_those_who_wait(table: LockTable) -> None:
    table.request(owner(1), [0], 0, NEVER)
    table.request(owner(2), [0, 1], 0, NEVER)
    assert granted(table.request(owner(1), [1], 0, NEVER)) == [("process 1", (1,), 2)]


class Turns(RuleBasedStateMachine):
    """Processes that lock, nest, release, die and wait, each doing one thing at a time."""

    @initialize()
    def begin(self) -> None:
        self.table, self.now, self.fence = LockTable(), 0.0, 0
        self.names = 0
        self.held: dict[int, tuple[Owner, tuple[Any, ...], float | None]] = {}  # by fence
        self.queue: list[tuple[Owner, frozenset[Any], float]] = []

    def apply(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            place = next((i for i, (who, _, _) in enumerate(self.queue) if who == decision.owner), None)
            assert place is not None, "a decision about nothing"
            who, devices, deadline = self.queue.pop(place)
            if isinstance(decision, LockGranted):
                assert set(decision.devices) == devices
                assert decision.fence > self.fence  # numbers only grow
                if not self.holds(who):
                    assert all(devices.isdisjoint(other) for _, other, _ in self.queue[:place])
                self.fence = decision.fence
                for fence, (_, theirs, until) in list(self.held.items()):
                    if not devices.isdisjoint(theirs):
                        assert until is not None  # nobody has a device of another
                        assert until <= self.now
                        del self.held[fence]
                self.held[decision.fence] = (who, decision.devices, self.until)
            elif isinstance(decision, TimedOut):
                assert deadline <= self.now
            else:
                assert self.holds(who)

    # Every lock of this machine is asked for with the same hold_for, so `until` is known when it is granted.
    hold_for: float | None = None

    @property
    def until(self) -> float | None:
        return None if self.hold_for is None else self.now + self.hold_for

    def holds(self, who: Owner) -> bool:
        return any(holder.process == who.process for holder, _, _ in self.held.values())

    def is_waiting(self, number: int) -> bool:
        return any(who.process == Process(pid=number, started=1) for who, _, _ in self.queue)

    @rule(
        number=st.integers(1, 4),
        devices=st.frozensets(st.integers(0, 3), min_size=1, max_size=2),
        patience=st.sampled_from([0, 3, NEVER, NEVER]),
    )
    def ask(self, number: int, devices: frozenset[int], patience: float) -> None:
        if self.is_waiting(number):
            return
        who = owner(number)
        self.queue.append((who, devices, self.now + patience))
        self.apply(self.table.request(who, devices, self.now, self.now + patience, self.hold_for))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        fence = data.draw(st.sampled_from(sorted(self.held)))
        if not self.is_waiting(self.held[fence][0].process.pid):  # type: ignore[union-attr]
            who, _, _ = self.held.pop(fence)
            self.apply(self.table.release(who, fence, self.now))

    @rule(number=st.integers(1, 4))
    def die(self, number: int) -> None:
        process = Process(pid=number, started=1)
        self.held = {fence: one for fence, one in self.held.items() if one[0].process != process}
        self.queue = [one for one in self.queue if one[0].process != process]
        self.apply(self.table.owner_died(process, self.now))

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.apply(self.table.tick(self.now))

    @invariant()
    def table_agrees(self) -> None:
        if not hasattr(self, "table"):
            return
        assert {one.fence for one in self.table.holds} == set(self.held)
        assert [one.owner for one in self.table.waiting] == [who for who, _, _ in self.queue]
        assert all(deadline > self.now for _, _, deadline in self.queue)
        for fence, (_, devices, _) in self.held.items():
            assert all(is_current(self.table, device, fence) for device in devices)

    def teardown(self) -> None:
        """Everyone who waits is served once those who can go on have released what they hold."""
        if not hasattr(self, "table"):
            return
        self.queue = [(who, devices, NEVER) for who, devices, _ in self.queue]
        for _ in range(len(self.queue) + 1):
            self.now += 100 if self.hold_for is not None else 0
            free = [f for f, one in self.held.items() if not self.is_waiting(one[0].process.pid)]  # type: ignore[union-attr]
            for fence in free:
                if fence in self.held:
                    who, _, _ = self.held.pop(fence)
                    self.apply(self.patient(self.table.release(who, fence, self.now)))
            self.apply(self.patient(self.table.tick(self.now)))
        assert not self.queue, "they wait for each other"

    def patient(self, decisions: list[Decision]) -> list[Decision]:
        """Time plays no part at the end."""
        late = {one.owner for one in decisions if isinstance(one, TimedOut)}
        self.queue = [one for one in self.queue if one[0] not in late]
        return [one for one in decisions if not isinstance(one, TimedOut)]


class ShortTurns(Turns):
    hold_for = 5.0


TestTurns = Turns.TestCase
TestShortTurns = ShortTurns.TestCase


# -- the agent that runs it ---------------------------------------------------------------------------------


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen(["sleep", "60"]) for _ in range(4)]
    yield started
    for child in started:
        child.kill()
        child.wait()


def test_an_agent_tells_who_waits_and_forgets_the_dead(children: list[subprocess.Popen[bytes]]) -> None:
    async def life() -> None:
        agent = NodeAgent()
        holder, dying, leaving, next_one = (Owner(process=process_of(child.pid)) for child in children)
        first = await agent.acquire(holder, [0], 1, None)
        assert isinstance(first, LockGranted)
        late = await agent.acquire(dying, [0], 0, None)
        assert isinstance(late, TimedOut)
        waiting = {
            one: asyncio.create_task(agent.acquire(one, [0], 60, None)) for one in (dying, leaving, next_one)
        }
        await asyncio.sleep(0)  # they have asked
        ports = await agent.lease_ports(2, owner=dying)  # who waits is in nobody's way
        await agent.withdraw(leaving)
        children[1].kill()
        done, _ = await asyncio.wait([waiting[dying], waiting[leaving]], timeout=30)
        assert [task.cancelled() for task in done] == [True, True]
        assert all(map(is_free, ports))
        children[0].kill()
        decision = await asyncio.wait_for(waiting[next_one], 30)
        assert isinstance(decision, LockGranted)
        assert decision.fence == first.fence + 1
        found = await agent.hold_on(0)
        assert found is not None
        assert found[0].owner == next_one
        await agent.withdraw(next_one)
        assert await agent.hold_on(0) is None

    asyncio.run(life())


def test_an_agent_watches_while_there_is_something_to_watch(children: list[subprocess.Popen[bytes]]) -> None:
    async def life() -> None:
        agent = NodeAgent()
        for child in children[:2]:  # twice: the watch ends, and begins again
            await agent.lease_ports(owner=Owner(process=process_of(child.pid)))
            watcher = agent._watcher
            assert watcher is not None
            child.kill()
            await asyncio.wait_for(watcher, 30)
            assert agent._shelf.held == []
        (kept,) = await agent.lease_ports(owner=Owner())  # the job's own
        assert agent._shelf.held == [kept]
        agent._shelf.close()

    asyncio.run(life())
