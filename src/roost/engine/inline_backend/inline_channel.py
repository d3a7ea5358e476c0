"""Channels and data buffers of the inline mode: copies of the values, in this process.

Values that go to another process are copies, and those that cannot be pickled are refused. So it is here too.
"""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Coroutine, Sequence
from typing import Any

from roost.engine.channels.buffer_desk import BufferDesk, cannot_be_put_back
from roost.engine.channels.channel_desk import ChannelDesk, at_once
from roost.engine.channels.channel_errors import cannot_travel
from roost.engine.channels.channel_values import Handed
from roost.engine.workers.remote_errors import in_one_line

_tokens = itertools.count()


class InlineChannel:
    """All ranks are one process, so none of them can die with items that it has taken."""

    def __init__(self, name: str, desk: ChannelDesk, waits: bool = False) -> None:
        self.name, self._desk, self._waits = name, desk, waits
        self.put, self.take = desk.put, desk.take
        self.note = "" if waits else "inline mode has one thread, so a wait could never end"

    def for_coroutines(self) -> InlineChannel:
        return InlineChannel(self.name, self._desk, waits=True)

    def new_token(self) -> str:
        return f"inline.{next(_tokens)}"

    def ask(self, method: str, *args: Any) -> Coroutine[Any, Any, Any]:
        return getattr(self._desk, method)(*args)

    def patience(self, timeout: float) -> float:
        """Other coroutines may run while one waits; without them a request is decided at once."""
        return timeout if self._waits else 0.0

    def withdraw(self, token: str) -> None:
        at_once(self._desk.withdraw(token))

    async def consumer(self) -> str:
        return "inline"

    async def stored(self, values: Sequence[Any], held: int) -> list[Any]:
        return [self._copied(value) for value in values]

    def _copied(self, value: Any) -> Any:
        try:
            return copied(value)
        except Exception as error:
            raise cannot_travel(self.name, value, in_one_line(error)) from error

    async def opened(self, handed: Handed) -> list[Any]:
        return [item.content for item in handed.items]


class InlineBuffer:
    def __init__(self, name: str, desk: BufferDesk) -> None:
        self._name, self._desk = name, desk

    def ask(self, method: str, *args: Any) -> Any:
        try:
            own = copied(args)
        except Exception as error:
            raise cannot_be_put_back(self._name, in_one_line(error)) from error
        return getattr(self._desk, method)(*own)


def copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # some values can only be pickled, such as a tensor that has a gradient function
        return pickle.loads(pickle.dumps(value, 5))
