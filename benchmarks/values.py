"""Large results from one group to another by reference, against the same through the driver in the same run.

    python benchmarks/values.py [--megabytes 100] [--rounds 7] [--check]

Four ranks of one group each return an array, which goes to the rank of the same number in another group, on one
node. By reference the driver passes the result itself, else the values it has waited for. Reported are how much the
driver's memory grows meanwhile, whether the receivers made copies, and the times. The two ways take turns; medians
are compared. Needs numpy (`make bench` installs it), whose arrays Ray gives out without copying.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import threading
import time
from dataclasses import dataclass, field

import numpy
import psutil

import roost

RANKS = 4
MB = 1_000_000
DRIVER_GROWS_AT_MOST = 10 * MB


@dataclass(frozen=True, kw_only=True)
class Received:
    """What a receiving rank says of its array."""

    total: int
    copied: bool  # into memory of its own, which it could write to
    grew: int  # bytes of memory that only this process has


class Producer(roost.Worker):
    def produce(self, megabytes: int, number: int) -> numpy.ndarray:
        return numpy.full(megabytes * MB, number + self.rank, dtype=numpy.uint8)


class Consumer(roost.Worker):
    def consume(self, array: numpy.ndarray) -> Received:
        copied = bool(array.flags.owndata or array.flags.writeable)
        before = psutil.Process().memory_full_info().uss
        total = int(array[::4096].sum(dtype=numpy.int64))  # reads every page of it
        grew = psutil.Process().memory_full_info().uss - before
        return Received(total=total, copied=copied, grew=grew)


class PeakMemory:
    """The most memory that this process has within the block, and how much more that is than before."""

    def __enter__(self) -> PeakMemory:
        gc.collect()
        self._process, self._over = psutil.Process(), threading.Event()
        self._before = self._peak = self._process.memory_info().rss
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.005):
            self._look()

    def _look(self) -> None:
        self._peak = max(self._peak, self._process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        self._look()
        self._over.set()
        self._watcher.join()
        self.grew = self._peak - self._before


@dataclass(kw_only=True)
class Found:
    """What was measured of one way."""

    seconds: list[float] = field(default_factory=list)
    driver_grew: list[int] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=100, help="of each rank's array")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="fail when a number is out of bounds")
    arguments = parser.parse_args()
    megabytes = arguments.megabytes
    found = {"by reference": Found(), "through the driver": Found()}
    with (
        roost.embedded(f"1x{2 * RANKS}") as address,
        roost.Cluster(num_nodes=1, address=address, job="bench") as cluster,
    ):
        first = Producer.create_group().launch(cluster, roost.PackedPlacementStrategy(0, RANKS - 1))
        second = Consumer.create_group().launch(cluster, roost.PackedPlacementStrategy(RANKS, 2 * RANKS - 1))

        def pass_on(way: str, number: int) -> None:
            with PeakMemory() as memory:
                began = time.perf_counter()
                made = first.produce(megabytes, number)
                given = roost.scatter(made if way == "by reference" else made.wait())
                answers = second.consume(given).wait(timeout=600)
                took = time.perf_counter() - began
            pages = len(range(0, megabytes * MB, 4096))
            assert [answer.total for answer in answers] == [(number + rank) * pages for rank in range(RANKS)]
            if number:
                found[way].seconds.append(took)
                found[way].received += answers
            found[way].driver_grew.append(memory.grew)

        for number in range(arguments.rounds + 1):  # the first round touches the store's memory
            for way in [*found] if number % 2 else reversed([*found]):
                pass_on(way, number)
    size = megabytes * MB
    print(f"{RANKS} x {megabytes} MB from group to group on one node ({arguments.rounds} rounds)")
    for way, one in found.items():
        print(
            f"{way:>20}: the driver grew by {max(one.driver_grew) / MB:.1f} MB at most, "
            f"{sum(each.copied or each.grew > size / 10 for each in one.received)} of {len(one.received)} arrays "
            f"were copied by their receiver, whose own memory grew by "
            f"{max(each.grew for each in one.received) / MB:.1f} MB at most"
        )
    by_reference = found["by reference"]
    ratio = statistics.median(by_reference.seconds) / statistics.median(found["through the driver"].seconds)
    print(f"by reference takes {ratio:.2f} times as long as through the driver (medians)")
    fine = (
        max(by_reference.driver_grew) <= DRIVER_GROWS_AT_MOST
        and not any(each.copied or each.grew > size / 10 for each in by_reference.received)
        and ratio <= 1.0
    )
    return 0 if fine or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
