"""Arguments with a value of its own for each rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Scattered:
    """One value for each called rank, in rank order."""

    __slots__ = ("values",)

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = list(values)

    def __repr__(self) -> str:
        return f"scatter({len(self.values)} values)"


def scatter(values: Iterable[Any]) -> Scattered:
    """Give each rank its own value: `group.step(roost.scatter([a, b, c]))`."""
    return Scattered(values)


def share_of(argument: Any, position: int) -> Any:
    return argument.values[position] if isinstance(argument, Scattered) else argument
