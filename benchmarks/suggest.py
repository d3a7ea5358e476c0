"""How long finding the best placement takes, how large fronts grow, and what is proven.

python benchmarks/suggest.py [COMPONENTS [ACCELERATORS [GROUPS [SEEDS]]]]

Seconds are of this process, on one core. Sizes are dense: every component may have any number of accelerators
between its smallest and its largest measured size. The last lines simulate a large arrangement.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import roost
from roost.suggesting.arrangement import Beside, Leaf
from roost.suggesting.checker import Checker
from roost.suggesting.problem import Problem, pose
from roost.suggesting.profile import read_profile
from roost.suggesting.relaxation import relaxed
from roost.suggesting.simulator import simulate
from roost.suggesting.solver import solve

NAMES = ["rollout", "reference", "inference", "reward", "critic", "actor", "env", "agent"]
SIZES = {  # accelerators, by components and node groups
    (3, 1): (64, 512, 4096, 16384),
    (5, 1): (64, 1024, 16384),
    (6, 1): (64, 1024, 10240),
    (8, 1): (64, 1024, 16384),
    (3, 2): (64, 512, 4096, 16384),
    (5, 2): (64, 1024, 16384),
    (6, 2): (64, 1024, 16384),
    (8, 2): (64, 1024, 16384),
}
PROMISED = {  # the largest gap, and the most seconds
    (3, 4096): (0.0, 1),
    (3, 16384): (0.001, 5),
    (6, 1024): (0.001, 5),
    (6, 10240): (0.01, 20),
    (8, 1024): (0.01, 20),
}


def instance(seed: int, count: int, total: int, groups: int = 1) -> Problem:
    rng = random.Random(seed)
    names, labels = NAMES[:count], ["fast", "slow"]

    def table(most: int) -> dict[int, float]:
        work, power = rng.uniform(50, 400), rng.uniform(0.7, 0.98)
        sizes = [1 << step for step in range(3 + rng.randrange(3), 20) if 1 << step <= most] or [8]
        return {size: round(work * (most / size) ** power, 3) for size in sizes}

    components: dict[str, Any] = {}
    for name in names:
        components[name] = {
            "seconds": table(total) if groups == 1 else {label: table(total // 2) for label in labels},
            "streams": rng.random() < 0.6,
            "switch": rng.choice([0, round(rng.uniform(1, 6), 2)]),
        }
    flow = {name: [other for other in names[:at] if rng.random() < 0.5] for at, name in enumerate(names)}
    profile = {
        "batch": rng.choice([64, 256, 512, 1024]),
        "flow": flow,
        "components": components,
        "weights": {"from": names[-1], "to": names[0], "together": 1.5, "apart": 6.0},
    }
    inventory = roost.Inventory.uniform(total // 8, 8)
    if groups == 2:
        half = total // 16
        ranks = [f"0-{half - 1}", f"{half}-{2 * half - 1}"]
        inventory = inventory.grouped(
            [{"label": label, "node_ranks": ranks[at]} for at, label in enumerate(labels)]
        )
    return pose(read_profile(profile), inventory, labels if groups == 2 else None)


def measure(count: int, total: int, groups: int, seeds: int) -> float:
    worst, gaps, states, exact = 0.0, 0.0, 0, 0
    checked, left = 0.0, 0.0
    for seed in range(seeds):
        problem = instance(seed, count, total, groups)
        start = time.process_time()
        found = solve(problem)
        worst = max(worst, time.process_time() - start)
        gaps = max(gaps, 0.0 if found.exact else 1 - found.bound / found.seconds)
        states, exact = max(states, found.states), exact + found.exact
        start = time.process_time()
        second = relaxed(problem, Checker(problem).tables, found.seconds)
        checked, left = max(checked, time.process_time() - start), max(left, 1 - second.bound / found.seconds)
    promise = PROMISED.get((count, total)) if groups == 1 else None
    verdict = (
        "" if promise is None else "  held" if gaps <= promise[0] and worst < promise[1] else "  NOT HELD"
    )
    print(
        f"{count} components, {total:>6} accelerators, {groups} group{'s' * (groups > 1)}: {worst:6.2f} s at most, "
        f"{exact} of {seeds} exact, gap at most {gaps:.3%}, largest front {states:>6,}; "
        f"a second method leaves {left:.3%} in {checked:.2f} s{verdict}",
        flush=True,
    )
    return worst


def simulate_many() -> None:
    names = ["rollout", "inference", "actor"]
    profile = {
        "batch": 1_000_000,
        "flow": {"rollout": [], "inference": ["rollout"], "actor": ["inference"]},
        "components": {name: {"seconds": {1024: 4000.0, 65536: 90.0}, "streams": True} for name in names},
    }
    problem = pose(read_profile(profile), roost.Inventory.uniform(8192, 8))
    sizes = [32768, 16384, 16384]
    one, two, three = (
        Leaf(component=name, accelerators=size, group="cluster")
        for name, size in zip(names, sizes, strict=True)
    )
    tree = Beside(first=Beside(first=one, second=two), second=three)
    for tails in ({}, {"rollout": 1.0}):
        start = time.process_time()
        done = simulate(tree, problem, tails=tails)
        seconds = time.process_time() - start
        print(
            f"simulation, 65,536 accelerators, a million items, {'tails' if tails else 'no tails'}: {seconds:.2f} s; "
            f"{done.seconds:.2f} s an iteration, the model says {done.model_seconds:.2f}",
            flush=True,
        )


def measure_growth(count: int, groups: int) -> None:
    seconds = {
        total: measure(count, total, groups, 5 if (count, total) in PROMISED and groups == 1 else 3)
        for total in SIZES[count, groups]
    }
    (least, short), *_, (most, long) = seconds.items()
    print(f"    {most // least} times the accelerators: {long / short:.1f} times the seconds", flush=True)


def main(asked: list[str]) -> None:
    numbers = [int(word) for word in asked]
    if len(numbers) > 1:
        count, total, groups, seeds = (*numbers, *(1, 3)[len(numbers) - 2 :])
        measure(count, total, groups, seeds)
        return
    for count, groups in SIZES:
        if not numbers or count == numbers[0]:
            measure_growth(count, groups)
    if not numbers:
        simulate_many()


if __name__ == "__main__":
    main(sys.argv[1:])
