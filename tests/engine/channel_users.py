"""Workers at channels. Importing this costs little, since every worker process does it."""

from __future__ import annotations

import gc
import itertools
import os
import threading
from pathlib import Path
from typing import Any

import roost


class ChannelUser(roost.Worker):
    """Calls a method of a channel, which stays open."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: dict[str, roost.Channel] = {}

    def use(self, channel: str, method: str, *args: Any, **kwargs: Any) -> Any:
        if channel not in self.channels:
            self.channels[channel] = roost.Channel(channel)
        return getattr(self.channels[channel], method)(*args, **kwargs)

    def put_and_forget(self, channel: str, value: Any) -> None:
        roost.Channel(channel).put(value)
        gc.collect()

    async def use_async(self, channel: str, method: str, *args: Any, **kwargs: Any) -> Any:
        return await getattr(roost.Channel(channel), method)(*args, **kwargs)

    def pid(self) -> int:
        return os.getpid()


class Producer(roost.Worker):
    def produce(self, channel: str, count: int, size: int) -> None:
        """Items are (number, data); rank r makes the numbers r * count and up."""
        out = roost.Channel(channel)
        for number in range(self.rank * count, (self.rank + 1) * count):
            out.put((number, number.to_bytes(4, "big") * (size // 4)), version=number)


class Consumer(roost.Worker):
    def consume(self, channel: str, notes: str, keeps: int | None = None) -> int:
        """Note each item that it was handed: its number, and how often it had been handed out before.

        The item with the number `keeps`, counted from 1, is not acknowledged: the consumer waits to be killed.
        """
        taken = roost.Channel(channel)
        with (Path(notes) / f"{self.rank}").open("w") as file:
            for count in itertools.count(1):
                try:
                    batch = taken.get_batch(count=1)
                except roost.ChannelClosed:
                    return self.rank
                ((number, data),) = batch
                assert data == number.to_bytes(4, "big") * (len(data) // 4)
                print(number, batch.facts[0].redelivered, file=file, flush=True)
                if count == keeps:
                    threading.Event().wait(600)
        raise AssertionError("it was not killed")

    def pid(self) -> int:
        return os.getpid()


def pid_of(channel: roost.Channel) -> int:
    """Of the channel's process."""
    import ray

    pid: int = ray.get(channel._side._host.__ray_call__.remote(lambda _: os.getpid()), timeout=60)
    return pid


def stored_values(host: Any) -> list[Any]:
    """In the process of a channel: its contents that are not the bytes of a value."""
    return [item.content for item in host._table._queues[None] if type(item.content) is not bytes]


def notes_of(directory: Path, rank: int) -> list[tuple[int, int]]:
    """What a consumer noted, line by line; the last line may be cut."""
    path = directory / f"{rank}"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [(int(number), int(before)) for number, before in map(str.split, lines)]


def check_all_taken_once(directory: Path, consumers: int, killed: int, count: int) -> None:
    """None was lost, and none was acknowledged twice."""
    lost_consumer = dict(notes_of(directory, killed))
    others = [note for rank in range(consumers) if rank != killed for note in notes_of(directory, rank)]
    numbers = [number for number, _ in others]
    assert len(numbers) == len(set(numbers)), "an item was handed to two consumers"
    assert {*numbers, *lost_consumer} == set(range(count)), "an item was lost"
    again = {number for number, before in others if before}
    assert {*numbers} & {*lost_consumer} <= again, "an item was handed out again without a mark"
    assert len(again) <= 1, "more was handed out again than the dead consumer had"


class BufferUser(roost.Worker):
    def get_samples(self, source: str, count: int) -> list[Any]:
        return roost.DataBuffer(source, name="shared").get_samples(count)
