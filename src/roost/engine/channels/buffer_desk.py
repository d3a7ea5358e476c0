"""A data buffer: a source, and the order in which it gives out the samples."""

from __future__ import annotations

from typing import Any

from roost.engine.channels.sample_order import PutBack, SampleOrder
from roost.engine.channels.sample_source import opened
from roost.errors import ClusterError


class BufferDesk(SampleOrder):
    def __init__(self, source: Any, seed: int) -> None:
        self._source = opened(source)
        super().__init__(self._source.facts, seed)

    def check(self, path: str | None, seed: int) -> str:
        """How this buffer differs from the one that another process asks for; empty if it does not."""
        mine = getattr(self._source, "path", None)
        if seed != self.seed:
            return f"seed {self.seed}, not {seed}"
        return f"the source {mine}, not {path}" if path is not None and path != mine else ""

    def take(self, count: int) -> list[Any]:
        """Take all of the samples or none: if a sample cannot be read, the order stays as it was."""
        before = self._epoch, self._given, tuple(self._put_back)
        try:
            return [
                one.value if isinstance(one, PutBack) else self._source[one] for one in super().take(count)
            ]
        except BaseException:
            self._begin(*before)
            raise


def no_such_buffer(name: str) -> ClusterError:
    return ClusterError(
        code="RE125",
        what=f"no process of this job has made a data buffer {name!r}",
        remedy="give it a source",
    )
