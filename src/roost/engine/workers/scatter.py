"""Arguments that differ by rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from roost.engine.workers.result import GroupResult


class Scattered:
    """One value for each rank a call goes to, in rank order: a list of them, or the result of another call."""

    __slots__ = ("result", "values")

    def __init__(self, values: Iterable[Any] | GroupResult) -> None:
        self.result = values if isinstance(values, GroupResult) else None
        self.values = [] if isinstance(values, GroupResult) else list(values)

    def __len__(self) -> int:
        return len(self.values) if self.result is None else len(self.result.ranks)

    def __repr__(self) -> str:
        return f"scatter({len(self)} values)"


def scatter(values: Iterable[Any] | GroupResult) -> Scattered:
    """Give each rank its own value: `group.step(roost.scatter([a, b, c]))`.

    The values of another call's result go from process to process: `trainer.train(roost.scatter(batch))`. With
    more values than ranks each rank gets a list of them, with fewer each value goes to several ranks.
    """
    return Scattered(values)
