"""The values of one take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from roost.engine.channels.channel_table import Handed, Key


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFacts:
    """The facts of an item besides its value."""

    key: Key
    weight: float
    version: int | None
    redelivered: int  # processes that took it and died before they acknowledged it


class Batch(list[Any]):
    """A list of values, with the facts of each, and the number of items that were too old."""

    def __init__(self, values: Iterable[Any], handed: Handed) -> None:
        super().__init__(values)
        self._facts = [item[2:] for item in handed.items]
        self.too_old = handed.too_old

    @property
    def facts(self) -> tuple[ItemFacts, ...]:
        return tuple(
            ItemFacts(key=key, weight=weight, version=version, redelivered=redelivered)
            for key, weight, version, redelivered in self._facts
        )
