"""The task: fetch the key, then reach the door, on a grid, in few steps. Many simulators run as one array."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

SIDE = 5  # of the grid
HORIZON = 16  # steps in an episode
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])
OFFSETS = 2 * SIDE - 1  # from -(SIDE - 1) to SIDE - 1
FEATURES = 4 * OFFSETS + 1  # where key and door are, seen from the agent, and whether it has the key
NEVER = HORIZON + 1


class Grid:
    """Simulators side by side. Episodes of one group begin in the same place, so that they can be compared."""

    def __init__(self, groups: int, group_size: int, random: np.random.Generator) -> None:
        cells = np.array([random.permutation(SIDE * SIDE)[:3] for _ in range(groups)])
        places = np.stack(np.divmod(cells, SIDE), axis=-1).repeat(group_size, axis=0)
        self.agent, self.key, self.door = places[:, 0].copy(), places[:, 1], places[:, 2]
        self.step_now = 0
        self.key_at = np.full(len(places), NEVER)  # the step in which each one got the key
        self.door_at = np.full(len(places), NEVER)

    @property
    def done(self) -> Array:
        return self.door_at < NEVER

    def step(self, actions: Array) -> None:
        self.step_now += 1
        moved = np.clip(self.agent + MOVES[actions], 0, SIDE - 1)
        self.agent = np.where(self.done[:, None], self.agent, moved)
        at_key = (self.agent == self.key).all(axis=1) & (self.key_at == NEVER)
        self.key_at[at_key] = self.step_now
        at_door = (self.agent == self.door).all(axis=1) & (self.key_at < NEVER) & ~self.done
        self.door_at[at_door] = self.step_now

    def observation(self) -> Array:
        """What a policy sees: one row for each simulator."""
        seen = np.zeros((len(self.agent), FEATURES), np.float32)
        rows = np.arange(len(seen))
        for place, thing in enumerate((self.key, self.door)):
            for axis in (0, 1):
                offset = thing[:, axis] - self.agent[:, axis] + SIDE - 1
                seen[rows, (2 * place + axis) * OFFSETS + offset] = 1.0
        seen[self.key_at < NEVER, : 2 * OFFSETS] = 0.0  # a key that was taken is seen no more
        seen[:, -1] = self.key_at < NEVER
        return seen


def rewards(key_at: Array, door_at: Array) -> Array:
    """Nothing without the key, a third for the key, and the rest for the door: more, the sooner."""
    sooner = 1 - 0.5 * door_at / HORIZON
    return np.where(key_at < NEVER, 0.3, 0.0) + np.where(door_at < NEVER, 0.7 * sooner, 0.0)
