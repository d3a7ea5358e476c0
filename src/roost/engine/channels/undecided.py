"""The requests that wait for a decision, and those that were withdrawn before they came."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

LATE = 1_000  # withdrawn requests to remember: Ray may deliver two calls in reverse order


class Undecided:
    """Knows requests by any name, such as a token or an owner."""

    def __init__(self) -> None:
        self._answers: dict[Any, asyncio.Future[Any]] = {}
        self._withdrawn: dict[Hashable, None] = {}

    def __contains__(self, name: Hashable) -> bool:
        return name in self._answers

    def add(self, name: Hashable) -> asyncio.Future[Any]:
        """The future decision about a request."""
        self._answers[name] = asyncio.get_running_loop().create_future()
        return self._answers[name]

    def decide(self, name: Hashable, decision: Any) -> None:
        answer = self._answers.pop(name, None)
        if answer is not None and not answer.done():
            answer.set_result(decision)

    def drop(self, name: Hashable) -> None:
        """Cancel a request whose process no longer waits."""
        answer = self._answers.pop(name, None)
        if answer is not None:
            answer.cancel()

    def withdraw(self, name: Hashable) -> None:
        """Let `was_withdrawn` refuse the request if it still comes."""
        remember(self._withdrawn, name)

    def was_withdrawn(self, name: Hashable) -> bool:
        """Whether a request that comes was withdrawn before. It may be asked again after that."""
        known = name in self._withdrawn
        self._withdrawn.pop(name, None)
        return known


def remember(some: dict[Any, None], one: Any) -> None:
    """Add to a memory of the latest."""
    some[one] = None
    if len(some) > LATE:
        del some[next(iter(some))]
