"""The driver: the loop of the job. It holds results, never their values, so nothing large passes through it.

cd examples/keydoor && roost launch colocated.yaml --on 2x4
"""

from __future__ import annotations

import re
import time
from collections import deque
from pathlib import Path
from typing import Any

from grid import HORIZON

import roost
from roost.testing.faults import Faults
from roost.views.curves import curve_lines

WITHIN = 300.0  # seconds for one step, on the slowest of machines
ATTEMPTS = 3  # at a batch whose engines die


def main(run: roost.Run, config: Any) -> int:
    settings = config.training
    victim(run, settings)  # a mistake in it should not show after minutes
    rewards: dict[str, list[float]] = {}
    behind: dict[str, list[float]] = {}
    for seed in settings.seeds:
        rewards[f"seed {seed}"], behind[f"seed {seed}"] = train(run, settings, seed)
    passed = [name for name, curve in rewards.items() if mean(curve[-5:]) >= settings.threshold]
    print(*curve_lines(rewards), f"passed {settings.threshold}: {', '.join(passed) or 'none'}", sep="\n")
    update = f"{weight_update(run) * 1000:.1f} ms (median of 9)"
    print(f"weight update, until every engine has it: {update}")
    if settings.report:
        folder = Path(settings.report)
        folder.mkdir(parents=True, exist_ok=True)
        run.trace(folder / "trace.json")
        page = roost.write_report(
            run.record(),
            folder,
            title=f"{run.plan.job_file}: key and door",
            curves={"reward": rewards, "staleness": behind},
            marks={"reward": {"threshold": settings.threshold}, "staleness": {"bound": settings.staleness}},
            facts={"weight update": update},
        )
        print(f"report: {page}")
    return 0 if len(passed) == len(rewards) else 1


def train(run: roost.Run, settings: Any, seed: int) -> tuple[list[float], list[float]]:
    """Trains from new weights. Returns the mean reward of each step, and how many versions its batch was behind."""
    actor, began = run["actor"], time.monotonic()
    actor.reset(seed)
    weights = publisher(run).weights()
    batches: deque[Batch] = deque()  # generation is ahead of training by as many batches as may be stale
    rewards: list[float] = []
    behind: list[float] = []
    for step in range(settings.steps):
        while len(batches) <= settings.staleness and step + len(batches) < settings.steps:
            batches.append(Batch(run, seed, step + len(batches), weights))
        if (doomed := victim(run, settings)) and step + 1 == doomed[2]:
            Faults().kill(run.status().of(doomed[0])[doomed[1]])
        rewards.append(batches.popleft().reward(newest=weights))
        taken = actor.take(settings.staleness)
        for _ in range(settings.epochs):
            actor.apply(actor.gradients())  # by reference, from each rank to all
        weights = publisher(run).weights()  # a result: the next batch begins when it is there
        actor.offload()
        behind.append(max(taken.wait(timeout=WITHIN)))
        if step % 5 == 4 or step == 0:
            bar, took = "#" * round(40 * rewards[-1]), time.monotonic() - began
            print(
                f"seed {seed}  step {step + 1:3}  reward {rewards[-1]:.2f} {bar:40} {took:5.1f} s", flush=True
            )
    return rewards, behind


class Batch:
    """Episodes that are being made. If a process dies, they are made again: the same seed gives the same ones."""

    def __init__(self, run: roost.Run, seed: int, number: int, weights: Any) -> None:
        self.run, self.seed, self.number, self.weights = run, seed, number, weights
        self.generate()

    def generate(self) -> None:
        # An engine that is restarted meanwhile was never loaded: its calls should fail, not reach it.
        env, rollout = self.run["env"].this_generation(), self.run["rollout"].this_generation()
        rollout.load(roost.scatter(self.weights), self.seed, self.number)
        seen = env.reset(self.seed, self.number)
        for _ in range(HORIZON):  # nothing is waited for: a call starts as soon as its inputs are there
            seen = env.step(roost.scatter(rollout.act(roost.scatter(seen))))
        self.episodes, self.outcomes = rollout.episodes(roost.scatter(seen)), env.outcome()

    def reward(self, newest: Any) -> float:
        """Send the episodes on to the actor, and wait for their mean reward."""
        for _ in range(ATTEMPTS):
            try:
                return mean(self.score(newest).wait(timeout=WITHIN))
            except roost.WorkerDied as died:
                print(died, flush=True)
                self.run[died.group].wait_recovered(timeout=WITHIN)
                self.generate()
        raise RuntimeError(f"batch {self.number} failed {ATTEMPTS} times")

    def score(self, newest: Any) -> Any:
        proximal: Any = []
        if "inference" in self.run.groups:
            proximal = self.run["inference"].logprobs(self.episodes, roost.scatter(newest))
        return self.run["reward"].score(self.episodes, self.outcomes, proximal, len(self.run["actor"]))


def publisher(run: roost.Run) -> Any:
    """Whose weights the engines get: those of the actor beside each, or those of rank 0, sent once to each node."""
    nodes = {
        name: [place.cluster_node_rank for place in run.plan.components[name].placements]
        for name in ("actor", "rollout")
    }
    return run["actor"] if nodes["actor"] == nodes["rollout"] else run["actor"][0]


def weight_update(run: roost.Run) -> float:
    """Seconds until every engine has the weights of an idle actor."""
    took = []
    for _ in range(9):
        began = time.monotonic()
        run["rollout"].load(roost.scatter(publisher(run).weights()), 0, 0).wait(timeout=WITHIN)
        took.append(time.monotonic() - began)
        run["rollout"].offload().wait(timeout=WITHIN)
    return sorted(took)[len(took) // 2]


def victim(run: roost.Run, settings: Any) -> tuple[str, int, int] | None:
    """`rollout:1@5`: the process that is killed, and the step, counted from 1 as they are printed."""
    found = re.fullmatch(r"([\w.-]+):(\d+)@(\d+)", settings.kill or "")
    sizes = {name: len(group) for name, group in run.groups.items()}
    if found and int(found[2]) < sizes.get(found[1], 0) and 1 <= int(found[3]) <= settings.steps:
        return found[1], int(found[2]), int(found[3])
    if settings.kill:
        raise roost.ConfigurationError(
            code="RC104",
            what=f"training.kill={settings.kill} names no process and step",
            why=f"processes: {', '.join(f'{name} 0-{size - 1}' for name, size in sizes.items())}; "
            f"steps: 1-{settings.steps}",
            remedy="write it as component:rank@step, such as rollout:1@5",
        )
    return None


def mean(values: list[float]) -> float:
    return sum(values) / len(values)
