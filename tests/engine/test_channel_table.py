"""The rules of channels, without Ray: what goes in comes out once, in order, whatever happens on the way."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from roost.engine.channels.channel_table import ChannelTable
from roost.engine.channels.channel_values import (
    Decision,
    Drained,
    Handed,
    PutDone,
    PutLate,
    PutRefused,
    TakeLate,
    Wanted,
)


def put(table: ChannelTable, token: str, *contents: Any, now: float = 0, **more: Any) -> list[Decision]:
    return table.put(token, contents, now, more.pop("deadline", 10), **more)


def take(
    table: ChannelTable,
    token: str,
    consumer: str = "a",
    *,
    now: float = 0,
    deadline: float = 10,
    **wanted: Any,
) -> list[Decision]:
    return table.take(token, consumer, Wanted(**wanted), now, deadline)


def handed(decisions: list[Decision]) -> dict[Any, list[Any]]:
    """What each take was handed."""
    return {one.token: [item.content for item in one.items] for one in decisions if isinstance(one, Handed)}


def kinds(decisions: list[Decision]) -> dict[Any, type]:
    return {one.token: type(one) for one in decisions}


def test_items_come_out_in_order() -> None:
    table = ChannelTable()
    assert kinds(put(table, "p", 1, 2, 3)) == {"p": PutDone}
    assert handed(take(table, "t")) == {"t": [1]}
    assert handed(take(table, "u", count=2)) == {"u": [2, 3]}
    assert len(table) == 0


def test_a_full_channel_makes_puts_wait_in_order() -> None:
    table = ChannelTable(capacity=1)
    put(table, "p", 1)
    assert put(table, "q", 2, 3) == []
    assert put(table, "r", 4) == []
    assert kinds(take(table, "t")) == {"t": Handed}
    decisions = take(table, "u")
    assert handed(decisions) == {"u": [2]}
    assert kinds(decisions)["q"] is PutDone
    assert handed(take(table, "v")) == {"v": [3]}
    assert handed(take(table, "w")) == {"w": [4]}


def test_a_late_put_says_how_much_went_in() -> None:
    table = ChannelTable(capacity=2)
    assert put(table, "p", 1, 2, 3, deadline=5) == []
    (late,) = table.tick(5)
    assert isinstance(late, PutLate)
    assert (late.done, late.state.held, late.state.capacity) == (2, {None: 2}, 2)
    assert handed(take(table, "t", count=2, now=6)) == {"t": [1, 2]}


def test_a_batch_may_be_larger_than_the_capacity() -> None:
    table = ChannelTable(capacity=1)
    assert take(table, "t", count=3) == []
    put(table, "p", 1)
    put(table, "q", 2)
    assert len(table) == 2
    assert handed(put(table, "r", 3)) == {"t": [1, 2, 3]}


def test_takers_of_a_key_are_served_in_turn() -> None:
    table = ChannelTable()
    assert take(table, "large", "a", count=2) == []
    assert take(table, "small", "b") == []
    assert kinds(put(table, "p", 1)) == {"p": PutDone}
    assert len(table) == 1
    decisions = put(table, "q", 2, 3)
    assert handed(decisions) == {"large": [1, 2], "small": [3]}


def test_keys_are_queues_of_their_own_and_do_not_block_each_other() -> None:
    table = ChannelTable(capacity=1)
    put(table, "p", 1, key="a")
    assert put(table, "q", 2, key="a") == []
    assert take(table, "t", key="b") == []
    assert handed(put(table, "r", 3, key="b")) == {
        "t": [3]
    }  # though the channel is full, and another put waits
    assert handed(take(table, "u", key="a")) == {"u": [1]}


def test_weights() -> None:
    table = ChannelTable()
    put(table, "p", "x", "y", "z", weights=[2, 2, 5])
    assert handed(take(table, "t", count=None, weight=3)) == {"t": ["x", "y"]}
    assert handed(take(table, "u", count=None, weight=5)) == {"u": ["z"]}
    assert take(table, "v", count=None, weight=2) == []
    assert handed(put(table, "q", "more", weights=[7])) == {"v": ["more"]}


@pytest.mark.parametrize(("weight", "count", "wanted"), [(0.1, 10, 1), (0.7, 3, 2.1)])
def test_weights_whose_sum_is_rounded_are_enough(weight: float, count: int, wanted: float) -> None:
    """In floating point these sums are a little smaller."""
    table = ChannelTable()
    put(table, "p", *range(count), weights=[weight] * count)
    put(table, "q", "next")
    assert handed(take(table, "t", count=None, weight=wanted)) == {"t": [*range(count)]}


def test_a_weight_of_whole_numbers_is_exact() -> None:
    table = ChannelTable()
    put(table, "p", "nearly", "enough", weights=[10**9 - 1, 1])
    assert handed(take(table, "t", count=None, weight=10**9)) == {"t": ["nearly", "enough"]}


def test_what_is_too_old_is_left_out_and_counted() -> None:
    table = ChannelTable()
    for version, content in ((1, "old"), (4, "new"), (None, "unknown"), (2, "old too"), (5, "newer")):
        put(table, content, content, version=version)
    (decision,) = take(table, "t", count=3, oldest=3)
    assert isinstance(decision, Handed)
    assert [item.content for item in decision.items] == ["new", "unknown", "newer"]
    assert (decision.too_old, table.state().too_old, len(table)) == (2, 2, 0)


def test_a_late_take_leaves_what_it_had_collected() -> None:
    table = ChannelTable()
    take(table, "t", "a", count=3, deadline=5)
    take(table, "u", "b", count=2, deadline=9)
    put(table, "p", 1)
    put(table, "q", 2)
    decisions = table.tick(5)
    assert handed(decisions) == {"u": [1, 2]}
    (late,) = [one for one in decisions if isinstance(one, TakeLate)]
    assert late.collected == 2


def test_the_next_take_acknowledges() -> None:
    table = ChannelTable()
    put(table, "p", 1, 2)
    take(table, "t", "a")
    take(table, "u", "a")
    assert table.state().taken == {"a": 1}
    assert (table.state().acknowledged, table.consumer_died("a", 1)) == (1, [])
    (decision,) = take(table, "v", "b")
    assert isinstance(decision, Handed)
    assert [(item.content, item.redelivered) for item in decision.items] == [(2, 1)]


def test_a_take_leaves_answers_that_its_process_has_not_seen() -> None:
    """Another coroutine of the process waits for them, and may give up."""
    table = ChannelTable()
    put(table, "p", 1, 2, 3)
    take(table, "seen", "a")
    take(table, "unseen", "a")
    table.take("next", "a", Wanted(), 0, 10, unseen=["unseen"])
    assert (table.state().taken, table.state().acknowledged) == ({"a": 2}, 1)
    table.acknowledge("a", 1, unseen=["unseen"])
    table.withdraw("unseen", 1)
    assert (table.state().taken, table.state().acknowledged) == ({}, 2)
    assert handed(take(table, "t", "b")) == {"t": [2]}


def test_what_a_dead_process_had_comes_first() -> None:
    table = ChannelTable(capacity=2)
    put(table, "p", 1, 2)
    take(table, "t", "a", count=2)
    put(table, "q", 3, 4)
    assert table.consumer_died("a", 1) == []
    assert len(table) == 4  # past the capacity: nothing is lost
    assert handed(take(table, "u", "b", count=4)) == {"u": [1, 2, 3, 4]}


def test_a_dead_process_is_handed_nothing() -> None:
    table = ChannelTable()
    take(table, "t", "a", count=2)
    put(table, "p", 1)
    table.consumer_died("a", 1)
    assert handed(take(table, "u", "b")) == {"u": [1]}


def test_a_process_that_ended_in_order_is_handed_nothing() -> None:
    table = ChannelTable()
    take(table, "waits", "a")
    table.consumer_left("a", 0)
    put(table, "p", 1)
    assert table.state().taken == {}
    (handed,) = take(table, "t", "b")
    assert isinstance(handed, Handed)
    assert [item.content for item in handed.items] == [1]


@pytest.mark.parametrize("answered", [False, True])
def test_a_withdrawn_take_gives_back(answered: bool) -> None:
    table = ChannelTable()
    take(table, "t", "a", count=2)
    put(table, "p", 1)
    if answered:
        put(table, "q", 2)
    table.withdraw("t", 1)
    decisions = take(table, "u", "b")
    assert handed(decisions) == {"u": [1]}
    assert table.state().redelivered == 0  # nobody has seen it


def test_what_is_lost_with_a_node_is_dropped_and_the_rest_goes_back() -> None:
    table = ChannelTable()
    put(table, "p", 1, 2, 3)
    (decision,) = take(table, "t", "a", count=3)
    assert isinstance(decision, Handed)
    table.lose("t", [decision.items[1].number], 1)
    assert handed(take(table, "u", "b", count=2)) == {"u": [1, 3]}
    assert (table.state().lost, table.state().redelivered) == (1, 0)


def test_a_withdrawn_put_leaves_what_went_in() -> None:
    table = ChannelTable(capacity=1)
    put(table, "p", 1, 2)
    table.withdraw("p", 1)
    assert handed(take(table, "t")) == {"t": [1]}
    assert take(table, "u") == []


def test_a_closed_channel_is_drained() -> None:
    table = ChannelTable(capacity=2)
    put(table, "p", 1, 2, 3)
    (refused,) = table.close(1)
    assert refused == PutRefused(token="p", done=2)
    assert put(table, "q", 4) == [PutRefused(token="q", done=0)]
    assert handed(take(table, "t", count=9)) == {"t": [1, 2]}
    assert kinds(take(table, "u")) == {"u": Drained}


def test_takers_that_wait_when_a_channel_closes() -> None:
    table = ChannelTable()
    take(table, "partly", "a", count=3)
    take(table, "other key", "b", key="k")
    put(table, "p", 1)
    decisions = table.close(1)
    assert handed(decisions) == {"partly": [1]}
    assert kinds(decisions)["other key"] is Drained


def test_a_closed_channel_waits_for_what_may_come_back() -> None:
    """If every other process left, items of a process that dies afterwards would be lost."""
    table = ChannelTable()
    put(table, "p", 1, 2)
    take(table, "t", "a")
    take(table, "u", "b")
    table.close(1)
    assert take(table, "v", "b") == []
    assert handed(table.consumer_died("a", 2)) == {"v": [1]}
    assert kinds(take(table, "w", "b")) == {"w": Drained}


def test_a_closed_channel_ends_with_the_last_acknowledgement() -> None:
    table = ChannelTable()
    put(table, "p", 1)
    take(table, "t", "a")
    table.close(1)
    assert take(table, "u", "b") == []
    assert kinds(table.acknowledge("a", 2)) == {"u": Drained}


def test_a_capacity_is_set_once() -> None:
    table = ChannelTable()
    assert table.limit(3)
    assert table.limit(3)
    assert not table.limit(4)
    assert table.capacity == 3


KEYS = st.sampled_from([None, None, "k"])
CONSUMERS = st.sampled_from(["a", "b", "c"])


class Channels(RuleBasedStateMachine):
    """Against a model that only knows where every item is."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.now = ChannelTable(capacity=2), 0.0
        self.tokens = self.made = 0
        self.pending: dict[int, deque[int]] = {}  # puts: what has not been decided
        self.inside: set[int] = set()  # in the channel, or waiting to go in
        self.taken: dict[str, dict[int, set[int]]] = {}  # by consumer and take
        self.gone: set[int] = set()  # acknowledged, too old, or refused
        self.takes: dict[int, tuple[str, Wanted]] = {}
        self.ever_taken: dict[int, int] = {}  # how often it was handed out
        self.deaths_of: dict[int, int] = {}
        self.key_of: dict[int, Any] = {}
        self.version_of: dict[int, int] = {}

    def hear(self, decisions: list[Decision]) -> None:
        for one in decisions:
            if isinstance(one, PutDone):
                del self.pending[one.token]
            elif isinstance(one, (PutLate, PutRefused)):
                rest = set(list(self.pending.pop(one.token))[one.done :])
                assert rest <= self.inside, "an item that was not put was handed out"
                self.inside -= rest
                self.gone |= rest
            else:
                consumer, wanted = self.takes.pop(one.token)
                if isinstance(one, Handed):
                    self.check_handed(one, consumer, wanted)

    def check_handed(self, one: Handed, consumer: str, wanted: Wanted) -> None:
        numbers = [item.content for item in one.items]
        assert numbers == sorted(numbers), "out of order"
        assert set(numbers) <= self.inside, "handed out twice"
        assert all(self.key_of[number] == wanted.key for number in numbers)
        assert all(item.redelivered == self.deaths_of.get(item.content, 0) for item in one.items)
        if wanted.oldest is not None:
            assert all(self.version_of[number] >= wanted.oldest for number in numbers)
        if not self.table.closed:
            assert len(numbers) == wanted.count
        self.inside -= set(numbers)
        self.taken.setdefault(consumer, {})[one.token] = set(numbers)

    def acknowledged(self, consumer: str) -> None:
        for numbers in self.taken.pop(consumer, {}).values():
            self.gone |= numbers

    @rule(count=st.integers(1, 4), key=KEYS, version=st.integers(0, 5), patience=st.integers(0, 9))
    def put(self, count: int, key: Any, version: int, patience: int) -> None:
        self.tokens += 1
        contents = range(self.made, self.made + count)
        self.made += count
        self.pending[self.tokens] = deque(contents)
        self.inside |= set(contents)
        self.key_of.update(dict.fromkeys(contents, key))
        self.version_of.update(dict.fromkeys(contents, version))
        self.hear(
            self.table.put(self.tokens, contents, self.now, self.now + patience, key=key, version=version)
        )

    @rule(
        consumer=CONSUMERS,
        count=st.integers(1, 4),
        key=KEYS,
        oldest=st.none() | st.integers(0, 4),
        patience=st.integers(0, 9),
    )
    def take(self, consumer: str, count: int, key: Any, oldest: int | None, patience: int) -> None:
        self.tokens += 1
        wanted = Wanted(key=key, count=count, oldest=oldest)
        self.takes[self.tokens] = consumer, wanted
        self.acknowledged(consumer)
        self.hear(self.table.take(self.tokens, consumer, wanted, self.now, self.now + patience))

    @rule(consumer=CONSUMERS)
    def ack(self, consumer: str) -> None:
        self.acknowledged(consumer)
        self.hear(self.table.acknowledge(consumer, self.now))

    @rule(consumer=CONSUMERS)
    def die(self, consumer: str) -> None:
        for numbers in self.taken.pop(consumer, {}).values():
            self.inside |= numbers
            for number in numbers:
                self.deaths_of[number] = self.deaths_of.get(number, 0) + 1
        self.takes = {token: take for token, take in self.takes.items() if take[0] != consumer}
        self.hear(self.table.consumer_died(consumer, self.now))

    @rule(place=st.integers(0, 5))
    def withdraw_take(self, place: int) -> None:
        tokens = sorted({*self.takes, *(token for takes in self.taken.values() for token in takes)})
        if tokens:
            token = tokens[place % len(tokens)]
            self.takes.pop(token, None)
            for takes in self.taken.values():
                self.inside |= takes.pop(token, set())
            self.hear(self.table.withdraw(token, self.now))

    @precondition(lambda self: self.tokens % 4 == 3)  # more often, little would be left waiting
    @rule(passed=st.integers(1, 3))
    def wait(self, passed: int) -> None:
        self.now += passed
        self.hear(self.table.tick(self.now))

    @precondition(lambda self: self.tokens > 15)  # little happens at a closed channel
    @rule()
    def close(self) -> None:
        self.hear(self.table.close(self.now))

    @invariant()
    def nothing_is_lost(self) -> None:
        state = self.table.state()
        taken = sum(len(numbers) for takes in self.taken.values() for numbers in takes.values())
        assert sum(state.taken.values()) == taken
        waiting = sum(map(len, self.pending.values()))
        assert len(self.table) <= len(self.inside) <= len(self.table) + waiting + state.too_old
        assert state.put == len(self.table) + taken + state.acknowledged + state.too_old

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        state = self.table.state()
        waiting_keys = {wanted.key for _, wanted in self.takes.values()}
        for key in waiting_keys:
            wanted = max(one.count or 0 for _, one in self.takes.values() if one.key == key)
            assert state.held.get(key, 0) < wanted
        if state.waiting_puts:
            assert state.size >= 2

    def teardown(self) -> None:
        """Close it; two consumers then take all that is left."""
        for consumer in ("a", "b", "c"):
            self.die(consumer)
        self.close()
        for key in (None, "k"):
            while True:
                self.tokens += 1
                self.takes[self.tokens] = "last", Wanted(key=key, count=3)
                self.acknowledged("last")
                decisions = self.table.take(
                    self.tokens, "last", Wanted(key=key, count=3), self.now, self.now + 1
                )
                self.hear(decisions)
                if any(isinstance(one, Drained) for one in decisions):
                    break
        assert len(self.inside) == self.table.state().too_old
        assert len(self.inside) + len(self.gone) == self.made


Channels.TestCase.settings = settings(max_examples=50, stateful_step_count=30)
TestChannels = Channels.TestCase


@pytest.mark.parametrize("seed", range(40))
def test_long_histories(seed: int) -> None:
    """Hypothesis finds the smallest failing history; these are longer than the ones it tries."""
    chance, machine = random.Random(seed), Channels()
    keys, consumers = [None, None, "k"], ["a", "b", "c"]
    steps: list[tuple[int, Callable[[], None]]] = [
        (8, lambda: machine.put(chance.randint(1, 4), chance.choice(keys), chance.randint(0, 5), 5)),
        (
            8,
            lambda: machine.take(
                *(chance.choice(consumers), chance.randint(1, 4), chance.choice(keys)),
                *(chance.choice([None, None, 2]), chance.randint(0, 5)),
            ),
        ),
        (2, lambda: machine.die(chance.choice(consumers))),
        (1, lambda: machine.ack(chance.choice(consumers))),
        (1, lambda: machine.withdraw_take(chance.randint(0, 5))),
        (3, lambda: machine.wait(1)),
    ]
    for (step,) in (
        chance.choices([step for _, step in steps], [often for often, _ in steps]) for _ in range(150)
    ):
        step()
        machine.nothing_is_lost()
        machine.nobody_waits_for_what_is_there()
    assert machine.table.state().acknowledged > 20
    machine.teardown()
