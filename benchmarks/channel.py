"""Small items through a channel and through Ray's own queue, one by one and in batches, in the same run.

A worker puts and the driver takes, first all puts and then all takes, so that neither waits for the other. Ray's
queue counts as 1. Every item is a value of its own: of one that is put many times, Ray would pickle one copy.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from ray.util.queue import Queue

import roost


def made(count: int, tokens: int) -> list[dict[str, Any]]:
    return [
        {
            "prompt": f"what is the answer to {number}?",
            "tokens": list(range(number, number + tokens)),
            "reward": 0.5,
        }
        for number in range(count)
    ]


AT_LEAST = {"one by one": 0.8, "in batches": 3.0}


class Putter(roost.Worker):
    def queue_one_by_one(self, queue: Any, count: int, tokens: int) -> float:
        items = made(count, tokens)
        began = time.perf_counter()
        for item in items:
            queue.put(item)
        return time.perf_counter() - began

    def queue_in_batches(self, queue: Any, count: int, tokens: int, batch: int) -> float:
        items = made(count, tokens)
        began = time.perf_counter()
        for first in range(0, count, batch):
            queue.put_nowait_batch(items[first : first + batch])
        return time.perf_counter() - began

    def channel_one_by_one(self, count: int, tokens: int) -> float:
        items, channel = made(count, tokens), roost.Channel("bench")
        channel.put(items[0])
        channel.get()
        began = time.perf_counter()
        for item in items:
            channel.put(item)
        return time.perf_counter() - began

    def channel_in_batches(self, count: int, tokens: int, batch: int) -> float:
        items, channel = made(count, tokens), roost.Channel("bench")
        began = time.perf_counter()
        for first in range(0, count, batch):
            channel.put_many(items[first : first + batch])
        return time.perf_counter() - began


def timed(call: Callable[[], Any], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=40, help="of each item: 2,000 have about 6 KB")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--check", action="store_true", help="fail when a ratio is too small")
    options = parser.parse_args()
    items, tokens, batch = options.items, options.tokens, options.batch
    with (
        roost.embedded("1x1") as address,
        roost.Cluster(num_nodes=1, address=address, job="bench") as cluster,
        Putter.create_group().launch(cluster, roost.PackedPlacementStrategy(0, 0)) as putter,
    ):
        queue, channel = Queue(actor_options={"num_cpus": 0}), roost.Channel("bench")
        ways: dict[str, Callable[[], float]] = {
            "queue one by one": lambda: (
                putter.queue_one_by_one(queue, items, tokens).wait(300)[0] + timed(queue.get, items)
            ),
            "channel one by one": lambda: (
                putter.channel_one_by_one(items, tokens).wait(300)[0] + timed(channel.get, items)
            ),
            "queue in batches": lambda: (
                putter.queue_in_batches(queue, items, tokens, batch).wait(300)[0]
                + timed(lambda: queue.get_nowait_batch(batch), items // batch)
            ),
            "channel in batches": lambda: (
                putter.channel_in_batches(items, tokens, batch).wait(300)[0]
                + timed(lambda: channel.get_batch(batch), items // batch)
            ),
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(options.rounds + 1):
            for way in [*ways] if number % 2 else reversed([*ways]):
                took = ways[way]()
                if number:  # the first round warms up
                    seconds[way].append(took)
    rates = {way: items / statistics.median(took) for way, took in seconds.items()}
    print(
        f"{items} items of {tokens} tokens from a worker to the driver, batches of {batch} "
        f"({options.rounds} rounds, medians)"
    )
    for way, rate in rates.items():
        print(f"{way:>20}: {rate:8.0f} items/s")
    base = rates["queue one by one"]
    ratios = {kind: rates[f"channel {kind}"] / base for kind in AT_LEAST}
    own = rates["channel in batches"] / rates["queue in batches"]
    print(
        f"of Ray's queue one by one: {ratios['one by one']:.2f} one by one, {ratios['in batches']:.1f} in batches; "
        f"of Ray's queue in batches: {own:.2f}"
    )
    fine = all(ratios[kind] >= least for kind, least in AT_LEAST.items())
    return 0 if fine or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
