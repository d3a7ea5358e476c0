"""Data buffers of the inline mode."""

from __future__ import annotations

from typing import Any

from roost.engine.channels.buffer_desk import BufferDesk


class InlineBuffer:
    def __init__(self, desk: BufferDesk) -> None:
        self._desk = desk

    def ask(self, method: str, *args: Any) -> Any:
        return getattr(self._desk, method)(*args)
