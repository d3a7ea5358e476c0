"""Uses what a cluster gave after its shutdown. A Ray that would start then is refused instead."""

from __future__ import annotations

from collections.abc import Callable

import ray
from saying import say

import roost


def main() -> None:
    cluster = roost.Cluster(num_nodes=1)
    channel, unused, buffer = roost.Channel("used"), roost.Channel("unused"), roost.DataBuffer(range(5))
    channel.put(1)
    channel.get()
    lock, manager = cluster.device_lock(0, [0]), roost.NodeManager.get_proxy()
    cluster.shutdown()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a Ray would start")

    ray.init = refuse
    uses: dict[str, Callable[[], object]] = {
        "get_samples": lambda: buffer.get_samples(1),
        "epoch": lambda: buffer.epoch,
        "another buffer": lambda: roost.DataBuffer([1], name="other"),
        "get": channel.get,
        "first get": unused.get,
        "put": lambda: channel.put(1),
        "large put": lambda: channel.put(bytes(2_000_000)),
        "first large put": lambda: unused.put(bytes(2_000_000)),
        "ack": unused.ack,
        "len": lambda: len(channel),
        "lock": lambda: lock.held,
        "manager": manager.get_nodes,
    }
    said = {}
    for name, use in uses.items():
        try:
            said[name] = repr(use())
        except roost.RoostError as error:
            said[name] = ",".join(error.codes)
        except BaseException as error:
            said[name] = repr(error)
    say(said)


main()
