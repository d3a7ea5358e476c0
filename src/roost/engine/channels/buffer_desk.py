"""A data buffer: a source, and the order in which it gives out the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roost.engine.channels.sample_order import PutBack, SampleOrder
from roost.engine.channels.sample_source import opened
from roost.errors import ClusterError


class BufferDesk:
    """Its methods are coroutines that never wait, so calls of several processes do not mix."""

    def __init__(self, source: Any, seed: int) -> None:
        self._source = opened(source)
        self._order = SampleOrder(self._source.facts, seed)

    async def check(self, path: str | None, seed: int) -> str:
        """How this buffer differs from the one that another process asks for; empty if it does not."""
        mine = getattr(self._source, "path", None)
        if seed != self._order.seed:
            return f"seed {self._order.seed}, not {seed}"
        return f"the source {mine}, not {path}" if path is not None and path != mine else ""

    async def take(self, count: int) -> list[Any]:
        """Take all of the samples or none: if a sample cannot be read, the order stays as it was."""
        before = self._order.mark()
        try:
            return [
                one.value if isinstance(one, PutBack) else self._source[one]
                for one in self._order.take(count)
            ]
        except BaseException:
            self._order.rewind(before)
            raise

    async def put_back(self, samples: Sequence[Any]) -> None:
        self._order.put_back(samples)

    async def epoch(self) -> int:
        return self._order.epoch

    async def state(self) -> dict[str, Any]:
        return self._order.state()

    async def restore(self, state: Any) -> None:
        self._order.restore(state)


def no_such_buffer(name: str) -> ClusterError:
    return ClusterError(
        code="RE125",
        what=f"no process of this job has made a data buffer {name!r}",
        remedy="give it a source",
    )
