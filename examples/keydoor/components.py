"""The components of the job. Each is a class; the job file says how many processes of it run, and where."""

from __future__ import annotations

from typing import Any

import numpy as np
from grid import Array, Grid, rewards
from policy import Adam, chosen, forward, gradient, new_weights, sample

import roost

Weights = tuple[int, Array]  # the version, and all weights as one vector
Episodes = dict[str, Array]  # each array: steps x episodes
Outcome = dict[str, Array]
CHANNEL = "experience"  # from the reward to the actor


class Env(roost.Worker):
    """Several simulators. Those of a group begin in the same place."""

    def __init__(self, groups: int, group_size: int) -> None:
        super().__init__()
        self.groups, self.group_size = groups // self.world_size, group_size

    def reset(self, seed: int, batch: int) -> Array:
        random = np.random.default_rng([seed, batch, self.rank])
        self.grid = Grid(self.groups, self.group_size, random)
        return self.grid.observation()

    def step(self, actions: Array) -> Array:
        self.grid.step(actions)
        return self.grid.observation()

    def outcome(self) -> Outcome:
        return {"key_at": self.grid.key_at, "door_at": self.grid.door_at}


class OnDevice(roost.Worker):
    """A component that may have to share its accelerators, and so takes turns with the others there."""

    turn: Any = None

    def onload(self) -> None:
        """Wait for the accelerators. A worker that has them keeps them."""
        if self.turn is None:
            self.turn = roost.device_lock(timeout=300)

    def offload(self) -> None:
        """Free what lies on the accelerators, and let the next component have them."""
        if self.turn is not None:
            self.turn.release()
            self.turn = None


class Rollout(OnDevice):
    """An engine: plays its simulators with the weights it is given."""

    def load(self, weights: Weights, seed: int, batch: int) -> None:
        """The weights are a view of shared memory: an engine on the node of their actor copies nothing."""
        self.onload()
        self.version, self.weights = weights
        self.random = np.random.default_rng([seed, batch, self.rank, 1])
        self.steps: list[tuple[Array, Array, Array]] = []

    def act(self, seen: Array) -> Array:
        table, _, _ = forward(self.weights, seen)
        actions = sample(table, self.random)
        self.steps.append((seen, actions, chosen(table, actions)))
        return actions

    def episodes(self, last: Array) -> Episodes:
        """All steps of the batch. It takes the last observation so that it does not run if a step has failed."""
        seen, actions, behaviour = (np.stack(part) for part in zip(*self.steps, strict=True))
        version = np.full(actions.shape, self.version)
        self.offload()
        return {"seen": seen, "actions": actions, "behaviour": behaviour, "version": version}

    def offload(self) -> None:
        self.weights, self.steps = np.zeros(0), []
        super().offload()


class Inference(OnDevice):
    """What the newest weights think of actions that older weights chose."""

    def logprobs(self, episodes: list[Episodes], weights: Weights) -> list[Array]:
        self.onload()
        found = [chosen(forward(weights[1], one["seen"])[0], one["actions"]) for one in episodes]
        self.offload()
        return found


class Reward(roost.Worker):
    """Scores episodes, compares those of a group, and hands them to the actor. One process does it all."""

    def __init__(self, group_size: int) -> None:
        super().__init__()
        self.group_size = group_size
        self.experience = roost.Channel(CHANNEL)

    def score(
        self, episodes: list[Episodes], outcomes: list[Outcome], proximal: list[list[Array]], learners: int
    ) -> float:
        """The mean reward. The episodes go to the actor's ranks in equal parts, with the version that made them."""
        batch = {name: np.concatenate([one[name] for one in episodes], axis=1) for name in episodes[0]}
        key_at, door_at = (np.concatenate([one[name] for one in outcomes]) for name in ("key_at", "door_at"))
        reward = rewards(key_at, door_at)
        groups = reward.reshape(-1, self.group_size)
        spread = groups.std(axis=1, keepdims=True) + 0.01
        length = len(batch["actions"])
        batch["advantage"] = np.tile(
            ((groups - groups.mean(axis=1, keepdims=True)) / spread).ravel(), (length, 1)
        )
        batch["counts"] = (np.arange(length)[:, None] < door_at).astype(float)  # steps after the door do not
        if proximal:
            batch["proximal"] = np.concatenate(proximal[0], axis=1)
        for rank in range(learners):
            part = {name: np.array_split(values, learners, axis=1)[rank] for name, values in batch.items()}
            self.experience.put(part, key=rank, version=int(batch["version"].min()))
        return float(reward.mean())


class Actor(OnDevice):
    """Learns by a clipped policy gradient. Every rank has the same weights and a part of each batch."""

    def __init__(self, rate: float, clip: float, entropy: float) -> None:
        super().__init__()
        self.rate, self.clip, self.entropy = rate, clip, entropy
        self.experience = roost.Channel(CHANNEL)

    def reset(self, seed: int) -> None:
        self.version, self.vector = 0, new_weights(seed)
        self.adam = Adam(self.vector.size, self.rate)

    def take(self, staleness: int) -> int:
        """Wait for this rank's part of a batch. Returns how many versions it is behind; older ones are dropped."""
        taken = self.experience.get_batch(
            count=1, key=self.rank, current=self.version, max_staleness=staleness, timeout=300
        )
        behind = self.version - int(taken.facts[0].version or 0)
        self.batch = {name: part.reshape(-1, *part.shape[2:]) for name, part in taken[0].items()}
        self.version += 1  # of the weights that this batch will make
        self.onload()
        return behind

    def gradients(self) -> Array:
        batch = self.batch
        # Where inference says what the newest weights think, older behaviour counts for what it is worth now.
        proximal = batch.get("proximal", batch["behaviour"])
        worth = np.minimum(np.exp(proximal - batch["behaviour"]), 2.0)
        return gradient(
            self.vector,
            batch["seen"],
            batch["actions"],
            proximal,
            batch["advantage"] * worth,
            batch["counts"],
            self.clip,
            self.entropy,
        )

    def apply(self, gradients: list[Array]) -> None:
        """Every rank gets the gradients of all, so all take the same step."""
        self.vector = self.adam.ascend(self.vector, np.mean(gradients, axis=0))

    def weights(self) -> Weights:
        return self.version, self.vector

    def offload(self) -> None:
        self.batch = {}
        super().offload()
