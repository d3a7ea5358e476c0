"""A data buffer: a source, and the order in which it gives out the samples.

Each epoch goes through all samples once, in an order that follows from the seed and the epoch alone. Samples that were
put back come first. The state is a dict of plain JSON values.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from roost.engine.channels.sample_source import opened
from roost.engine.workers.remote_errors import in_one_line
from roost.errors import ClusterError, ConfigurationError, counted, shown

FORMAT = 1


class BufferDesk:
    def __init__(self, source: Any, seed: int, sent: Callable[[list[Any]], Any]) -> None:
        """`sent` gives samples the form in which they go to the process that takes them."""
        self._sent = sent
        self._source, self._seed, self._epoch, self._given = opened(source), seed, 0, 0
        self._facts = self._source.facts
        self._put_back: deque[Any] = deque()
        self._order = permutation(seed, 0, self._facts.count)

    def check(self, path: str | None, count: int | None, seed: int) -> str:
        """How this buffer differs from the one that another process asks for; empty if it does not."""
        mine = getattr(self._source, "path", None)
        if seed != self._seed:
            return f"seed {self._seed}, not {seed}"
        if path is not None and path != mine:
            return f"the source {mine or 'of another process'}, not {path}"
        if count not in (None, self._facts.count):
            return f"{counted(self._facts.count, 'sample')}, not {count}"
        return ""

    def take(self, count: int) -> Any:
        """Take all of the samples or none: if a sample cannot be read or sent, the order stays as it was."""
        before = self._epoch, self._given, tuple(self._put_back)
        try:
            samples = [self._next() for _ in range(count)]
            try:
                return self._sent(samples)
            except Exception as error:
                raise _cannot_be_sent(samples, self._sent, in_one_line(error)) from error
        except BaseException:
            self._begin(*before)
            raise

    def _next(self) -> Any:
        if self._put_back:
            return self._put_back.popleft()
        sample = self._source[self._order[self._given]]
        self._given += 1
        if self._given == self._facts.count:
            self._begin(self._epoch + 1, 0, ())
        return sample

    def put_back(self, values: Iterable[Any]) -> None:
        """Give these out first, in this order, before samples that were put back earlier."""
        self._put_back.extendleft(reversed(list(values)))

    def epoch(self) -> int:
        return self._epoch

    def _begin(self, epoch: int, given: int, put_back: Iterable[Any]) -> None:
        """Go on from this position in the order."""
        if epoch != self._epoch:
            self._order = permutation(self._seed, epoch, self._facts.count)
        self._epoch, self._given, self._put_back = epoch, given, deque(put_back)

    # -- saving and restoring --------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT,
            "seed": self._seed,
            "count": self._facts.count,
            "digest": self._facts.digest,
            "epoch": self._epoch,
            "given": self._given,
            "put_back": [_as_json(value) for value in self._put_back],
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
        self._begin(state["epoch"], state["given"], state["put_back"])

    def _misfit(self, state: Any) -> str | None:
        if not isinstance(state, Mapping) or state.get("format_version") != FORMAT:
            return f"it is not a data buffer of format {FORMAT}"
        numbers = [state.get(name) for name in ("seed", "count", "epoch", "given")]
        if not all(type(number) is int for number in numbers) or not isinstance(state.get("put_back"), list):
            return "it is incomplete"
        if (state["seed"], state["count"]) != (self._seed, self._facts.count):
            here, there = (self._seed, self._facts.count), (state["seed"], state["count"])
            return f"it has seed {there[0]} and {there[1]} samples, this one seed {here[0]} and {here[1]} samples"
        if state.get("digest") != self._facts.digest:
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


def _cannot_be_sent(samples: Sequence[Any], sent: Callable[[list[Any]], Any], why: str) -> ConfigurationError:
    def fails(sample: Any) -> bool:
        try:
            sent([sample])
        except Exception:
            return True
        return False

    kind = next((type(one).__name__ for one in samples if fails(one)), "list")
    return ConfigurationError(
        code="RC103",
        what=f"a sample of type {kind} cannot go to another process",
        why=why[:500],
        remedy="let the source give plain data, or arrays; these samples come again at the next call",
    )


def cannot_be_put_back(name: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        code="RC103",
        what=f"these samples cannot be put back into data buffer {name!r}",
        why=why[:500],
        remedy="put back plain data, or arrays",
    )


def no_such_buffer(name: str) -> ClusterError:
    return ClusterError(
        code="RE125",
        what=f"no process of this job has made a data buffer {name!r}",
        remedy="give it a source",
    )
