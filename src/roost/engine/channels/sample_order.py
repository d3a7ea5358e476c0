"""The order in which a data buffer gives out samples: a rule without a clock or a file.

Each epoch goes through all samples once, in an order that follows from the seed and the epoch alone. Samples that were
put back come first. The state is a dict of plain JSON values.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.errors import ConfigurationError, shown

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """The facts that a saved state must match: the state names samples by their places in the source."""

    count: int
    digest: str | None = None  # of a file's content


@dataclass(frozen=True, slots=True)
class PutBack:
    value: Any


class SampleOrder:
    def __init__(self, source: SourceFacts, seed: int) -> None:
        self.source, self.seed, self._epoch, self._given = source, seed, 0, 0
        self._put_back: deque[PutBack] = deque()
        self._order = permutation(seed, 0, source.count)

    def take(self, count: int) -> list[int | PutBack]:
        """The next samples: values that were put back, then places in the source."""
        found: list[int | PutBack] = []
        while len(found) < count:
            if self._put_back:
                found.append(self._put_back.popleft())
                continue
            found.append(self._order[self._given])
            self._given += 1
            if self._given == self.source.count:
                self._begin(self._epoch + 1, 0, self._put_back)
        return found

    def put_back(self, values: Iterable[Any]) -> None:
        """Give these out first, in this order, before samples that were put back earlier."""
        self._put_back.extendleft(reversed([PutBack(value) for value in values]))

    def epoch(self) -> int:
        return self._epoch

    def _begin(self, epoch: int, given: int, put_back: Iterable[PutBack]) -> None:
        """Go on from this position in the order."""
        if epoch != self._epoch:
            self._order = permutation(self.seed, epoch, self.source.count)
        self._epoch, self._given, self._put_back = epoch, given, deque(put_back)

    # -- saving and restoring --------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT,
            "seed": self.seed,
            "count": self.source.count,
            "digest": self.source.digest,
            "epoch": self._epoch,
            "given": self._given,
            "put_back": [_as_json(one.value) for one in self._put_back],
        }

    def restore(self, state: Any) -> None:
        """Go on from a saved state. A state that does not fit changes nothing."""
        problem = self._misfit(state)
        if problem:
            raise ConfigurationError(
                code="RS104",
                what=f"a saved data buffer cannot be used: {problem}",
                remedy="load it with the source and the seed that it was saved with",
            )
        self._begin(state["epoch"], state["given"], map(PutBack, state["put_back"]))

    def _misfit(self, state: Any) -> str | None:
        if not isinstance(state, Mapping) or state.get("format_version") != FORMAT:
            return f"it is not a data buffer of format {FORMAT}"
        numbers = [state.get(name) for name in ("seed", "count", "epoch", "given")]
        if not all(type(number) is int for number in numbers) or not isinstance(state.get("put_back"), list):
            return "it is incomplete"
        if (state["seed"], state["count"]) != (self.seed, self.source.count):
            here, there = (self.seed, self.source.count), (state["seed"], state["count"])
            return f"it has seed {there[0]} and {there[1]} samples, this one seed {here[0]} and {here[1]} samples"
        if state.get("digest") != self.source.digest:
            return "the source has other samples than when it was saved"
        if state["epoch"] < 0 or not 0 <= state["given"] < state["count"]:
            return f"epoch {state['epoch']} and place {state['given']} do not exist"
        return None


def permutation(seed: int, epoch: int, count: int) -> Sequence[int]:
    """A shuffle, written out: Python promises only of `random()` that every version gives the same numbers."""
    chance, order = random.Random(f"{seed}/{epoch}"), list(range(count))
    for last in range(count - 1, 0, -1):
        other = int(chance.random() * (last + 1))
        order[last], order[other] = order[other], order[last]
    return order


def _as_json(value: Any) -> Any:
    """The value, if JSON brings it back unchanged. Raises otherwise."""
    try:
        same = json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError, RecursionError):
        same = False
    if same is not True:
        raise ConfigurationError(
            code="RS104",
            what=f"a sample that was put back cannot be saved: {shown(value)}",
            why="a saved data buffer is JSON, and this value would come back from it as another one",
            remedy="put back dicts with texts as keys, lists, texts and numbers, or take these samples before saving",
        )
    return value
