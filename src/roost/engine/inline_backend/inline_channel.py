"""Channels and data buffers of the inline mode: the values themselves, in this process."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Generator, Sequence
from typing import Any

from roost.engine.channels.buffer_desk import BufferDesk
from roost.engine.channels.channel_desk import ChannelDesk
from roost.engine.channels.channel_table import Decision, Handed

Steps = Generator[Coroutine[Any, Any, Any], Any, Any]
_tokens = itertools.count()


class InlineChannel:
    """All ranks are one process, so none of them can die with items that it has taken."""

    note = "inline mode has one thread, so a wait could never end"

    def __init__(self, name: str, desk: ChannelDesk) -> None:
        self.name, self._desk = name, desk

    def new_token(self) -> str:
        return f"inline.{next(_tokens)}"

    def ask(self, method: str, *args: Any) -> Coroutine[Any, Any, Any]:
        return getattr(self._desk, method)(*args)

    def put(self, *request: Any) -> Steps:
        return (yield self._desk.put(*request))

    def take(self, *request: Any) -> Steps:
        return (yield self._desk.take(*request))

    def patience(self, timeout: float, waits: bool) -> float:
        """Other coroutines may run while one waits; without them a request is decided at once."""
        return timeout if waits else 0.0

    def finish(self, steps: Steps) -> Any:
        try:
            asked = next(steps)
            while True:
                asked = steps.send(_at_once(asked))
        except StopIteration as end:
            return end.value

    async def async_finish(self, steps: Steps) -> Any:
        try:
            asked = next(steps)
            while True:
                try:
                    found = await asked
                except BaseException as error:
                    asked = steps.throw(error)
                else:
                    asked = steps.send(found)
        except StopIteration as end:
            return end.value

    def withdraw(self, token: str) -> None:
        _at_once(self._desk.withdraw(token))

    def consumer(self) -> Steps:
        yield from ()
        return "inline"

    def stored(self, values: Sequence[Any]) -> Steps:
        yield from ()
        return list(values)

    def answered(self, decision: Decision) -> None:
        pass

    def opened(self, handed: Handed) -> Steps:
        yield from ()
        return [item.content for item in handed.items]


class InlineBuffer:
    def __init__(self, desk: BufferDesk) -> None:
        self._desk = desk

    def ask(self, method: str, *args: Any) -> Any:
        return getattr(self._desk, method)(*args)


def _at_once(asked: Coroutine[Any, Any, Any]) -> Any:
    """The answer to a request that does not wait."""
    try:
        asked.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a request without patience has waited")
