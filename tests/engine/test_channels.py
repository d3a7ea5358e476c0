"""Channels between the processes of a job on a real Ray, and what happens when some of them die."""

from __future__ import annotations

import asyncio
import enum
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from channel_users import (
    ChannelUser,
    Consumer,
    Producer,
    check_all_taken_once,
    notes_of,
    pid_of,
    stored_values,
)
from ray.exceptions import RayActorError
from running import alive, eventually, eventually_unless_stuck

import roost
from live import EndedJob
from roost.engine.channels.channel_desk import ChannelDesk
from roost.engine.channels.channel_values import Handed, Item, Wanted
from roost.engine.connection.actors import find_actor
from roost.engine.job import channel_host
from roost.engine.job.channel_host import ChannelHost
from roost.engine.job.node_agent import agent_name
from roost.engine.job.packed_value import Packer, StoredValue, unpack
from roost.engine.job.ray_channel import RayChannel, _chunks
from roost.errors import NoAnswer

pytestmark = pytest.mark.ray
BIG = b"0123456789" * 100_000  # a megabyte


@pytest.fixture(scope="module")
def users(cluster: roost.Cluster) -> Iterator[roost.WorkerGroup]:
    """One on node 0, one on node 1."""
    strategy = roost.NodePlacementStrategy([0, 1])
    with ChannelUser.create_group().launch(cluster, strategy, name="users") as group:
        yield group


@pytest.fixture
def channel(cluster: roost.Cluster, users: roost.WorkerGroup) -> Iterator[roost.Channel]:
    """It is empty, and nothing is taken. Each channel is a process, so tests share this one."""
    found = roost.Channel("shared")
    yield found
    users.use("shared", "ack").wait(timeout=60)
    for key, count in found.state().held.items():
        found.get_batch(count=count, key=key)
    found.ack()


@pytest.fixture
def doomed(cluster: roost.Cluster) -> Iterator[roost.WorkerGroup]:
    with ChannelUser.create_group().launch(cluster, roost.NodePlacementStrategy([1]), name="doomed") as group:
        yield group


def test_values_go_from_process_to_process(channel: roost.Channel, users: roost.WorkerGroup) -> None:
    before = channel.state().acknowledged
    users[0].use("shared", "put", {"big": BIG, "small": 1}, version=3, weight=2).wait(timeout=60)
    users[0].use("shared", "put_many", ["a", BIG, None]).wait(timeout=60)
    assert len(channel) == 4
    (batch,) = users[1].use("shared", "get_batch", count=3).wait(timeout=60)
    assert batch == [{"big": BIG, "small": 1}, "a", BIG]
    assert batch.facts[0] == roost.ItemFacts(key=None, weight=2, version=3, redelivered=0)
    assert channel.get(timeout=60) is None
    assert channel.state().taken.keys() == {
        f"users rank 1 (pid {users.execute_on(1).pid().wait(timeout=60)[0]})",
        f"the driver (pid {os.getpid()})",
    }
    users[1].use("shared", "ack").wait(timeout=60)
    channel.ack()
    assert (channel.state().taken, channel.state().acknowledged) == ({}, before + 4)


def test_references_and_channels_are_values_too(channel: roost.Channel, users: roost.WorkerGroup) -> None:
    import ray

    channel.put({"ref": ray.put(BIG), "channel": channel})  # the only reference is in the channel now
    (value,) = users[0].use("shared", "get", timeout=60).wait(timeout=90)
    assert ray.get(value["ref"], timeout=60) == BIG
    value["channel"].put(1)
    assert len(channel) == 1


def test_an_item_that_cannot_be_loaded_is_not_lost(channel: roost.Channel, users: roost.WorkerGroup) -> None:
    channel.put(OnlyHere())
    with pytest.raises(roost.WorkerRaised, match=r"(?s)item of channel 'shared' cannot be loaded.*not here"):
        users[0].use("shared", "get").wait(timeout=60)
    assert type(channel.get(timeout=60)) is OnlyHere


class OnlyHere:
    def __reduce__(self) -> Any:
        return _loaded_in, (os.getpid(),)


def _loaded_in(pid: int) -> OnlyHere:
    if os.getpid() != pid:
        raise ImportError("not here")
    return OnlyHere()


def test_puts_wait_for_room(cluster: roost.Cluster, users: roost.WorkerGroup) -> None:
    channel = roost.Channel("narrow", capacity=2)
    putting = users[0].use("narrow", "put_many", range(5))
    eventually(lambda: channel.state().waiting_puts == 1, 60, "the put waits")
    assert len(channel) == 2
    with pytest.raises(roost.ChannelTimeout, match="waited 0 s for room for 1 item") as late:
        channel.put(9, timeout=0)
    assert "no process waits for items" in str(late.value)
    assert channel.get_batch(count=5, timeout=60) == [0, 1, 2, 3, 4]  # more than the capacity
    putting.wait(timeout=60)
    with pytest.raises(roost.ClusterError, match="has a capacity of 2, not 3"):
        roost.Channel("narrow", capacity=3)


def test_what_a_dead_process_put_and_took_is_not_lost(
    cluster: roost.Cluster, users: roost.WorkerGroup, doomed: roost.WorkerGroup
) -> None:
    """It had made the channel too."""
    doomed.use("left", "put_many", [BIG, "small"]).wait(timeout=60)
    assert doomed.use("left", "get_batch", count=1).wait(timeout=60) == [[BIG]]
    waiting = users[0].use("left", "get_batch", count=2, timeout=60)
    os.kill(doomed.pid().wait(timeout=60)[0], signal.SIGKILL)
    (batch,) = waiting.wait(timeout=90)
    assert batch == [BIG, "small"]
    assert [facts.redelivered for facts in batch.facts] == [1, 0]


def test_a_group_that_is_shut_down_has_ended_in_order(
    channel: roost.Channel, doomed: roost.WorkerGroup
) -> None:
    before = channel.state()
    channel.put_many([1, 2])
    doomed.use("shared", "get").wait(timeout=60)
    doomed.shutdown()
    eventually(lambda: not channel.state().taken, 60, "its end was noticed")
    after = channel.state()
    assert (after.acknowledged, after.redelivered) == (before.acknowledged + 1, before.redelivered)
    assert channel.get() == 2


def test_a_channel_outlives_the_handles_to_it(cluster: roost.Cluster, users: roost.WorkerGroup) -> None:
    """Ray ends an actor that no process has a counted handle of."""
    users.execute_on(0).put_and_forget("kept", 7).wait(timeout=60)
    assert roost.Channel("kept").get(timeout=60) == 7


def test_an_attached_process_ends_in_order(
    cluster: roost.Cluster, channel: roost.Channel, run: Callable[..., Any]
) -> None:
    before = channel.state().acknowledged
    channel.put_many([1, 2])
    program = run("takes", cluster.job, "shared", "in order")
    assert program.answer() == 1
    assert program.end() == 0
    assert (channel.state().taken, channel.state().acknowledged) == ({}, before + 1)


@pytest.mark.parametrize("how", ["raises", "raises inside"])
def test_an_attached_process_that_an_exception_ends_gives_back(
    cluster: roost.Cluster, channel: roost.Channel, run: Callable[..., Any], how: str
) -> None:
    before = channel.state().redelivered
    channel.put_many([1, 2])
    program = run("takes", cluster.job, "shared", how)
    assert program.answer() == 1
    assert program.end() == 1
    assert channel.get_batch(count=2, timeout=60) == [1, 2]
    assert channel.state().redelivered == before + 1


def test_a_node_whose_agent_died_puts_and_takes_as_before(clusters: Callable[..., roost.Cluster]) -> None:
    made = clusters(num_nodes=2)
    users = ChannelUser.create_group().launch(made, roost.NodePlacementStrategy([0, 1]), name="users")
    users[1].use("x", "put", BIG, key="lost with the agent").wait(timeout=60)
    users[1].use("x", "put_many", ["taken", "kept"]).wait(timeout=60)
    assert users[1].use("x", "get_batch", count=1).wait(timeout=60) == [["taken"]]
    kill_actor(agent_name(made.node_infos[1].node_id), made.job)
    eventually(
        lambda: [one for one in made._backend.events if "another one watches" in one.detail],
        60,
        "another agent is there",
    )
    users[1].use("x", "put", BIG).wait(timeout=60)  # through the channel that knows the dead one
    os.kill(users.execute_on(1).pid().wait(timeout=60)[0], signal.SIGKILL)
    (batch,) = users[0].use("x", "get_batch", count=3, timeout=60).wait(timeout=90)
    assert batch == ["taken", "kept", BIG]
    assert [facts.redelivered for facts in batch.facts] == [1, 0, 0]


def kill_actor(name: str, job: str) -> None:
    import ray

    ray.kill(find_actor(name, job))


def test_coroutines(cluster: roost.Cluster, users: roost.WorkerGroup) -> None:
    async def main() -> None:
        channel = roost.Channel("coroutines", capacity=1)
        first = asyncio.gather(*[channel.async_get(timeout=60) for _ in range(3)])  # one consumer, not three
        await channel.async_put_many(range(3), timeout=60)
        assert sorted(await first) == [0, 1, 2]
        await channel.async_ack()
        assert not (await channel.async_state()).taken
        got, _ = await asyncio.gather(
            channel.async_get_batch(count=3, timeout=60), channel.async_put_many([1, BIG, 3], timeout=60)
        )
        assert got == [1, BIG, 3]
        await channel.async_ack()
        given_up = asyncio.create_task(channel.async_get(timeout=60))
        while not (await channel.async_state()).waiting_takes:
            await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        await channel.async_put("kept")
        assert await users[0].use_async("coroutines", "async_get", timeout=60) == ["kept"]
        await channel.async_close()
        assert await channel.async_len() == 0
        with pytest.raises(roost.ChannelClosed):
            await channel.async_put(1)

    asyncio.run(main())


def test_items_that_were_lost_with_their_node(channel: roost.Channel) -> None:
    """A process that dies stands for the node whose agent holds the item."""
    import ray

    @ray.remote(num_cpus=0)
    class Adopter:
        def adopt(self, *values: Any) -> list[Any]:
            return [ray.put(value) for value in values]

    adopter = Adopter.remote()
    channel.put("first")
    channel._side._agent = adopter
    channel.put(BIG)
    ray.kill(adopter)
    (stored,) = ray.get(channel._side._host.__ray_call__.remote(stored_values), timeout=60)

    def is_lost() -> bool:
        try:
            ray.get(stored.object, timeout=1)
        except ray.exceptions.GetTimeoutError:
            return False
        except ray.exceptions.RayError:
            return True
        return False

    eventually(is_lost, 60, "Ray knows that the item is lost")
    with pytest.raises(roost.ChannelError, match="1 item of channel 'shared' cannot be fetched") as lost:
        channel.get_batch(count=2, timeout=60)
    assert lost.value.codes == ("RE126",)
    assert channel.get(timeout=60) == "first"
    assert (channel.state().lost, len(channel)) == (1, 0)


@pytest.mark.parametrize("gone", [("b",), ()])
def test_coroutines_learn_which_items_were_lost_without_a_blocking_call(
    gone: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If none was, as after a passing failure, they get the values."""
    import ray

    asked: list[Any] = []

    async def answered(refs: Any, what: str, within: float) -> Any:
        asked.append(refs)
        if len(asked) == 1 or refs in gone:
            raise ray.exceptions.OwnerDiedError("00" * 28, "", "")
        if refs == "slow":
            raise NoAnswer(code="RE112", what=what)
        return [[pickle.dumps(ref)] for ref in refs] if isinstance(refs, list) else None

    async def lose(*_: Any) -> None:
        lost.append(_)

    lost: list[Any] = []
    monkeypatch.setattr(ray, "get", None)
    monkeypatch.setattr("roost.engine.job.ray_channel.async_answer", answered)
    channel = RayChannel("job", "x", host=None, waits=True)
    monkeypatch.setattr(channel, "ask", lose)
    items = tuple(Item(number, StoredValue(ref, 0)) for number, ref in enumerate(["a", "b", "slow"]))
    handed = Handed(token="token", items=items, too_old=0)
    if gone:
        with pytest.raises(roost.ChannelError, match="1 item of channel 'x' cannot be fetched"):
            asyncio.run(channel.opened(handed))
    else:
        assert asyncio.run(channel.opened(handed)) == ["a", "b", "slow"]
    assert lost == [("lose", "token", [1])] * len(gone)


def test_a_channel_holds_few_bytes_of_many_small_values(
    channel: roost.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put_many goes in by parts, and from some number of items on the channel has only references."""
    import ray

    monkeypatch.setattr("roost.engine.channel.AT_A_TIME", 10)
    monkeypatch.setattr("roost.engine.job.ray_channel.INLINE", ((15, 4_096),))
    values = [bytes([number]) * 1_000 for number in range(30)]
    channel.put_many(values)
    stored = ray.get(channel._side._host.__ray_call__.remote(stored_values), timeout=60)
    assert [one.place for one in stored] == [*range(10)] * 2
    assert [len({one.object for one in part}) for part in (stored, stored[:10])] == [2, 1]
    assert channel.get_batch(count=30, timeout=60) == values


def test_a_channel_ends_with_its_job(ended_job: EndedJob) -> None:
    eventually(lambda: not alive(ended_job.channel_pid), 30, "the channel's process has ended")
    with pytest.raises(roost.ClusterError) as gone:
        ended_job.channel.get()
    assert gone.value.codes == ("RE106",)


def test_none_is_lost_and_none_is_taken_twice(cluster: roost.Cluster, tmp_path: Path) -> None:
    stream(cluster, tmp_path, producers=1, consumers=2, count=40, size=200_000, capacity=8)


@pytest.mark.slow
def test_ten_thousand_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from running import module_path

    monkeypatch.setenv("PYTHONPATH", module_path())
    with (
        roost.embedded("2x4") as address,
        roost.Cluster(num_nodes=2, address=address, job="stream") as made,
    ):
        stream(made, tmp_path, producers=4, consumers=3, count=10_000, size=1_000_000, capacity=32)


def stream(
    cluster: roost.Cluster,
    notes: Path,
    *,
    producers: int,
    consumers: int,
    count: int,
    size: int,
    capacity: int,
) -> None:
    """One of the consumers is killed when it has taken a third of its items, the last of which it still holds."""
    channel = roost.Channel("stream", capacity=capacity)
    source = roost.NodePlacementStrategy([number % 2 for number in range(producers)])
    sink = roost.NodePlacementStrategy([number % 2 for number in range(consumers)])
    with (
        Producer.create_group().launch(cluster, source, name="producers") as making,
        Consumer.create_group().launch(cluster, sink, name="consumers") as taking,
    ):
        victim = taking.pid().wait(timeout=60)[0]
        third = count // consumers // 3
        results = [taking[0].consume("stream", str(notes), keeps=third)]
        made = making.produce("stream", count // producers, size)

        def noted(*ranks: int) -> int:
            return sum(len(notes_of(notes, rank)) for rank in ranks)

        def wait_for(check: Callable[[], Any], what: str) -> None:
            eventually_unless_stuck(check, lambda: noted(*range(consumers)), 300, what)

        # Alone at first, so that it gets so many.
        wait_for(lambda: noted(0) == third, "a third was taken")
        results += [taking[rank].consume("stream", str(notes)) for rank in range(1, consumers)]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: made.done, "everything was put")
        made.wait(timeout=60)
        channel.close()
        with pytest.raises(roost.WorkerDied):
            results[0].wait(timeout=60)
        wait_for(lambda: all(result.done for result in results), "everything was taken")
        assert [result.wait(timeout=60) for result in results[1:]] == [[rank] for rank in range(1, consumers)]
    check_all_taken_once(notes, consumers, killed=0, count=count)
    # Pages that it shares with every process of Ray are not counted.
    assert psutil.Process(pid_of(channel)).memory_full_info().uss < 100_000_000


# -- inline, without Ray --------------------------------------------------------------------------------


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Iterator[roost.Cluster]:
    with roost.Cluster(num_nodes=1, inline="1x2") as made:
        monkeypatch.setenv("ROOST_JOB", made.job)  # this process may be connected to a Ray as well
        yield made


def test_inline(inline: roost.Cluster) -> None:
    group = ChannelUser.create_group().launch(inline, roost.PackedPlacementStrategy(0, 1))
    group.use("x", "put", 1).wait()
    channel = roost.Channel("x", capacity=2)
    assert channel.get_batch(count=2) == [1, 1]
    channel.put(BIG, key="k")
    assert group[1].use("x", "get", key="k").wait() == [BIG]
    with pytest.raises(roost.ChannelTimeout, match="inline mode has one thread"):
        channel.get()
    channel.put_many([1, 2])
    with pytest.raises(roost.ChannelTimeout) as full:
        channel.put_many([3, 4])
    assert (full.value.done, "inline mode has one thread" in str(full.value)) == (0, True)
    channel.close()
    assert group[0].use("x", "get_batch", count=9).wait() == [[1, 2]]
    with pytest.raises(roost.ChannelClosed):
        channel.get()


def test_inline_values_are_copies(inline: roost.Cluster) -> None:
    channel, value = roost.Channel("x"), {"tokens": [1, 2]}
    channel.put(value)
    value["tokens"].clear()
    assert channel.get() == {"tokens": [1, 2]}
    with pytest.raises(roost.ConfigurationError, match="a value of type lock cannot go through channel 'x'"):
        channel.put_many([1, threading.Lock()])
    assert len(channel) == 0


def test_a_long_put_that_does_not_fit_tells_how_far_it_came(
    inline: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.engine.channel.AT_A_TIME", 4)
    channel = roost.Channel("x", capacity=6)
    with pytest.raises(roost.ChannelTimeout, match="room for 4 items") as full:
        channel.put_many(range(10), weights=range(1, 11))
    assert (full.value.done, "6 of 10 items went in before" in str(full.value)) == (6, True)
    batch = channel.get_batch(count=6)
    assert (batch, [one.weight for one in batch.facts]) == ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6])


def test_a_long_put_that_fails_in_a_later_part_tells_how_far_it_came(
    inline: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.engine.channel.AT_A_TIME", 4)
    channel, values = roost.Channel("x"), [*range(9), threading.Lock()]
    with pytest.raises(roost.ConfigurationError, match="a value of type lock cannot go") as unfit:
        channel.put_many(values)
    assert (unfit.value.codes, unfit.value.done) == (("RC103",), 8)
    assert "8 of 10 items went in before; " in str(unfit.value)
    with pytest.raises(roost.ConfigurationError) as unfit:
        channel.put_many(values[-1:])
    assert (unfit.value.done, "went in" in str(unfit.value)) == (0, False)
    assert channel.get_batch(count=8) == values[:8]
    assert len(channel) == 0


def test_messages_that_arrive_after_their_end_change_nothing() -> None:
    """Ray may deliver a large request after its withdrawal, or a take of a process that is dead."""

    async def main() -> None:
        desk = ChannelDesk()
        await desk.withdraw("late put")
        assert await desk.put("late put", 1, None, None, None, ["x"]) is None
        await desk.join("dead", "a dead process")
        desk.consumer_ended("dead", in_order=False)
        await desk.put("put", 1, None, None, None, ["y"])
        assert await desk.take("late take", 1, "dead", Wanted()) is None
        assert await desk.size() == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("node_lives", "has_successor", "items"), [(True, False, 0), (False, False, 1), (True, True, 1)]
)
def test_a_consumer_whose_agent_is_gone_is_dead_with_its_node_or_when_the_next_agent_says_so(
    node_lives: bool, has_successor: bool, items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`items` go to another process."""
    looks, found = [], []

    def nodes() -> list[dict[str, Any]]:
        looks.append(1)  # Ray notices at the third look that a node is gone
        return [{"NodeID": "other", "Alive": True}, {"NodeID": "its", "Alive": node_lives or len(looks) < 3}]

    async def gone(_: Any) -> bool:
        raise RayActorError

    async def ended(_: Any) -> bool:
        return False

    async def main() -> int:
        host, process = ChannelHost(), cast(Any, None)
        await host.join_watched("consumer", "who", process, agent, ("agent", "job"), "its")
        await host.put("put", 1, None, None, None, ["x"])
        await host.take("take", 1, "consumer", Wanted(count=1))
        await asyncio.wait_for(next(iter(host._watchers.values())), 60)
        return await host.size()

    agent = SimpleNamespace(_actor_id=1, ended=SimpleNamespace(remote=gone))
    successor = SimpleNamespace(_actor_id=2, ended=SimpleNamespace(remote=ended))

    def get_actor(*name: str) -> Any:
        """Ray still finds the dead one at first."""
        found.append(name)
        return successor if has_successor and len(found) >= 3 else agent

    monkeypatch.setattr(channel_host.ray, "get_actor", get_actor)
    monkeypatch.setattr(channel_host.ray, "nodes", nodes)
    monkeypatch.setattr(channel_host, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(channel_host, "NOTICED_WITHIN", 60 if items else 0.5)
    assert asyncio.run(main()) == items
    assert len(looks) >= 3


def test_a_process_that_counts_as_dead_is_told(inline: roost.Cluster) -> None:
    channel = roost.Channel("x")
    channel.put(1)
    channel._side._desk.consumer_ended("inline", in_order=False)
    with pytest.raises(roost.ChannelError, match="gives nothing to this process any more"):
        channel.get()


def test_values_that_are_put_together_share_objects() -> None:
    """What an agent is handed at a time, object by object; the numbers are the places of the values."""
    mib = 1024 * 1024
    sizes = {0: 400_000, 2: 500_000, 3: 200_000, 4: 3 * mib, 5: 10, 7: 64 * mib, 8: 20, 9: 20}
    assert list(_chunks(sizes)) == [[[0, 2], [3], [4], [5], [7]], [[8, 9]]]
    assert list(_chunks({})) == []


def test_values_are_packed_one_by_one() -> None:
    class Unwilling:
        def __reduce__(self) -> Any:
            raise ValueError("not this one")

    shared, factor = [1, 2], 3
    packer = Packer(inline=4_096)
    first = packer.pack({"a": shared, "b": shared})
    with pytest.raises(ValueError, match="not this one"):
        packer.pack([shared, Unwilling()])
    second, function = packer.pack({"a": shared}), packer.pack(lambda x: x * factor)
    again = unpack(first)
    assert again == {"a": [1, 2], "b": [1, 2]}
    assert again["a"] is again["b"]
    assert (unpack(second), unpack(function)(2)) == ({"a": [1, 2]}, 6)


def test_a_coroutine_that_gives_up_loses_nothing_when_another_one_takes(inline: roost.Cluster) -> None:
    """Its answer was on the way when the other one took, which acknowledges what the process has seen."""

    async def main() -> list[Any]:
        channel = roost.Channel("x")
        given_up = asyncio.create_task(channel.async_get())
        await asyncio.sleep(0)
        await channel.async_put_many(["a", "b"])
        assert await channel.async_get() == "b"
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        return [await channel.async_get(), (await channel.async_state()).acknowledged]

    assert asyncio.run(main()) == ["a", 1]


def test_inline_coroutines_wait_for_each_other(inline: roost.Cluster) -> None:
    async def main() -> list[Any]:
        channel = roost.Channel("x", capacity=1)
        return await asyncio.gather(channel.async_get_batch(count=3), channel.async_put_many([1, 2, 3]))

    assert asyncio.run(main()) == [[1, 2, 3], None]


MISTAKES: list[tuple[Callable[[roost.Channel], Any], str]] = [
    (lambda _: roost.Channel("a/b"), "'a/b' is not a name of a channel"),
    (lambda _: roost.Channel("x", capacity=0), "a capacity is a whole number from 1 on, or None, not 0"),
    (lambda c: c.put(1, weight=0), "a weight is a number above 0, not 0"),
    (lambda c: c.put(1, key=1.5), "a key is a text or a whole number, not 1.5"),
    (lambda c: c.put(1, version="3"), "a version is a whole number, not '3'"),
    (lambda c: c.put(1, timeout=None), "timeout is a number of seconds, not None"),
    (lambda c: c.put_many([1, 2], weights=[1]), "1 weights for 2 values"),
    (
        lambda c: c.put_many([1], weights=(one for one in [1])),
        "weights are a list of numbers, not <generator",
    ),
    (lambda c: c.put_many([1], weights=1.5), "weights are a list of numbers, not 1.5"),
    (lambda c: c.put_many("one value"), "put_many takes a list of values, not 'one value'"),
    (lambda c: c.put_many(5), "put_many takes a list of values, not 5"),
    (lambda c: asyncio.run(c.async_put_many({"a": 1})), "put_many takes a list of values, not {'a': 1}"),
    (lambda c: c.get_batch(), "a batch has a count or a weight, one of them"),
    (lambda c: c.get_batch(count=1, weight=1), "a batch has a count or a weight, one of them"),
    (lambda c: c.get_batch(count=0), "count is a whole number from 1 on, not 0"),
    (lambda c: c.get_batch(weight=-1), "weight is a number above 0, not -1"),
    (lambda c: c.get_batch(count=1, max_staleness=1), "max_staleness and current are given together"),
    (
        lambda c: c.get_batch(count=1, max_staleness=-1, current=1),
        "max_staleness is a whole number from 0 on",
    ),
    (lambda c: c.get(timeout=float("nan")), "timeout is a number of seconds, not nan"),
]


@pytest.mark.parametrize(("mistake", "says"), MISTAKES, ids=[says for _, says in MISTAKES])
def test_mistakes(inline: roost.Cluster, mistake: Callable[[roost.Channel], Any], says: str) -> None:
    channel = roost.Channel("x")
    channel.put("kept")
    with pytest.raises(roost.ConfigurationError) as caught:
        mistake(channel)
    assert says in str(caught.value)
    assert channel.get() == "kept"


class Split(str, enum.Enum):
    TRAIN = "train"


class Step(enum.IntEnum):
    FIRST = 1


def test_the_process_of_a_channel_needs_no_classes_of_its_users(inline: roost.Cluster) -> None:
    channel = roost.Channel("x")
    channel.put_many(["a", "b"], key=Split.TRAIN, version=Step.FIRST)
    channel.put("c", key=Step.FIRST)
    assert [(key, type(key)) for key in channel.state().held] == [("train", str), (1, int)]
    (facts,) = channel.get_batch(count=1, key="train").facts
    assert (type(facts.key), type(facts.version)) == (str, int)
    assert channel.get(key=Split.TRAIN) == "b"


def test_an_unknown_key_is_told_the_known_ones(inline: roost.Cluster) -> None:
    channel = roost.Channel("x")
    channel.put_many([1, 2], key="train")
    channel.put(3)
    with pytest.raises(roost.ChannelTimeout) as late:
        channel.get(key="trian")
    assert "it holds items: 2 of key 'train', 1 without key" in str(late.value)
    assert "did you mean 'train'?" in str(late.value)
    channel.close()
    with pytest.raises(roost.ChannelClosed, match="nothing of key 'eval' is left in it"):
        channel.get(key="eval")
    assert len(channel) == 3


def test_old_items_are_left_out_and_counted(inline: roost.Cluster) -> None:
    channel = roost.Channel("x")
    for version in range(5):
        channel.put(version, version=version)
    batch = channel.get_batch(count=2, max_staleness=1, current=4)
    assert (batch, batch.too_old, channel.state().too_old) == ([3, 4], 3, 3)


def test_errors_survive_pickling() -> None:
    error = roost.ChannelTimeout(code="RE123", what="x")
    error.done = 3
    again = pickle.loads(pickle.dumps(error))
    assert (again.codes, again.done) == (("RE123",), 3)


def test_a_channel_that_processes_open_at_once_stays_until_its_process_is_killed(
    users: roost.WorkerGroup,
) -> None:
    for number in range(2):
        for _ in range(3):  # in the first round none finds it, and all ask for it
            users.use(f"rush{number}", "put", number).wait(timeout=120)
        assert roost.Channel(f"rush{number}").get_batch(count=6, timeout=60) == [number] * 6
    channel = roost.Channel("rush1")
    os.kill(pid_of(channel), signal.SIGKILL)
    with pytest.raises(
        roost.ChannelError, match="process of channel 'rush1' has ended, and its items"
    ) as gone:
        channel.put(1)
    assert gone.value.codes == ("RE126",)

    def is_new() -> bool:  # Ray knows the name of the dead one for a moment longer
        try:
            return len(roost.Channel("rush1")) == 0
        except roost.ChannelError:
            return False

    eventually(is_new, 60, "the name stands for a new channel")
    new = roost.Channel("rush1")
    new.put(2)
    assert new.get(timeout=60) == 2
    assert new.state().taken == {f"the driver (pid {os.getpid()})": 1}  # the new process knows this one too
