"""A small neural network as a policy: its forward pass, its gradient, and Adam, in NumPy."""

from __future__ import annotations

import numpy as np
from grid import FEATURES, MOVES, Array

HIDDEN = 128
SHAPES = ((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (HIDDEN, len(MOVES)), (len(MOVES),))
ENDS = np.cumsum([int(np.prod(shape)) for shape in SHAPES])


def new_weights(seed: int) -> Array:
    """All weights are one vector: it is sent, averaged and updated as a whole."""
    random = np.random.default_rng(seed)
    parts = [
        random.normal(0, shape[0] ** -0.5, shape) if len(shape) == 2 else np.zeros(shape) for shape in SHAPES
    ]
    parts[-2] *= 0.1  # near-uniform actions at the start
    return np.concatenate([part.ravel() for part in parts])


def layers(weights: Array) -> list[Array]:
    """Views of the vector: nothing is copied."""
    return [part.reshape(shape) for part, shape in zip(np.split(weights, ENDS[:-1]), SHAPES, strict=True)]


def forward(weights: Array, seen: Array) -> tuple[Array, Array, Array]:
    """Log-probabilities of all actions, and the two hidden layers."""
    w1, b1, w2, b2, w3, b3 = layers(weights)
    first = np.tanh(seen @ w1 + b1)
    second = np.tanh(first @ w2 + b2)
    scores = second @ w3 + b3
    scores -= scores.max(axis=-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True)), first, second


def chosen(table: Array, actions: Array) -> Array:
    return np.take_along_axis(table, actions[..., None], axis=-1)[..., 0]


def sample(table: Array, random: np.random.Generator) -> Array:
    """Draw an action for each row of log-probabilities."""
    drawn: Array = (table + random.gumbel(size=table.shape)).argmax(axis=-1)
    return drawn


def gradient(
    weights: Array,
    seen: Array,
    actions: Array,
    proximal: Array,
    advantage: Array,
    mask: Array,
    clip: float,
    entropy: float,
) -> Array:
    """Of the clipped policy-gradient objective, to be ascended."""
    table, first, second = forward(weights, seen)
    chances = np.exp(table)
    ratio = np.exp(chosen(table, actions) - proximal)
    inside = np.where(advantage > 0, ratio < 1 + clip, ratio > 1 - clip)  # else the clipped side is flat
    push = ratio * advantage * inside * mask / mask.sum()
    d_scores = -chances * push[:, None]
    d_scores[np.arange(len(actions)), actions] += push
    surprise = -(chances * table).sum(axis=-1, keepdims=True)
    d_scores += entropy * -chances * (table + surprise) * (mask / mask.sum())[:, None]
    _, _, w2, _, w3, _ = layers(weights)
    d_second = d_scores @ w3.T * (1 - second**2)
    d_first = d_second @ w2.T * (1 - first**2)
    parts = [
        seen.T @ d_first,
        d_first.sum(0),
        first.T @ d_second,
        d_second.sum(0),
        second.T @ d_scores,
        d_scores.sum(0),
    ]
    return np.concatenate([part.ravel() for part in parts])


class Adam:
    def __init__(self, size: int, rate: float) -> None:
        self.rate, self.steps = rate, 0
        self.mean, self.square = np.zeros(size), np.zeros(size)

    def ascend(self, weights: Array, gradient: Array) -> Array:
        self.steps += 1
        self.mean += 0.1 * (gradient - self.mean)
        self.square += 0.001 * (gradient**2 - self.square)
        mean, square = self.mean / (1 - 0.9**self.steps), self.square / (1 - 0.999**self.steps)
        return weights + self.rate * mean / (np.sqrt(square) + 1e-8)
