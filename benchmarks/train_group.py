"""How long a train group takes to start, against a plain worker group of the same size in the same run.

    python benchmarks/train_group.py [--size 8] [--rounds 5] [--check]

Both are on accelerators that are held already. Rounds are interleaved; medians are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

import roost

os.environ.setdefault("ROOST_FORKED_WORKERS", "0")  # processes start as on other clusters


class Trainer(roost.Worker):
    def init(self) -> int:
        return self.rank


def train_group(pool: roost.Pool) -> float:
    began = time.perf_counter()
    trainers = roost.TrainGroup(Trainer, pool, name="trained", timeout=120)
    trainers.init()
    seconds = time.perf_counter() - began
    trainers.release()
    return seconds


def worker_group(pool: roost.Pool, size: int) -> float:
    began = time.perf_counter()
    group = Trainer.create_group().launch(
        pool.cluster, roost.PackedPlacementStrategy(0, size - 1), name="plain"
    )
    group.init().wait(timeout=120)
    seconds = time.perf_counter() - began
    group.shutdown()
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="fail when the ratio is out of bounds")
    arguments = parser.parse_args()
    size = arguments.size
    times: dict[str, list[float]] = {"train": [], "plain": []}
    with (
        roost.embedded(f"1x{size}") as address,
        roost.Cluster(num_nodes=1, address=address, job="bench") as cluster,
        cluster.pool(roost.Layout(actor_num_gpus_per_node=size, rollout_num_gpus=0)) as pool,
    ):
        worker_group(pool, size)  # fills caches for both
        for number in range(arguments.rounds):
            # Whoever comes second finds the machine as the first left it, so they take turns.
            for way in ("train", "plain") if number % 2 else ("plain", "train"):
                time.sleep(3.0)  # the processes of the last round end meanwhile
                times[way].append(train_group(pool) if way == "train" else worker_group(pool, size))
    ratio = statistics.median(times["train"]) / statistics.median(times["plain"])
    print(f"train group of {size} / worker group of {size}: {ratio:.2f} (medians, {arguments.rounds} rounds)")
    return 0 if ratio <= 1.1 or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
