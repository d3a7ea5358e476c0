"""Data buffers of the inline mode."""

from __future__ import annotations

from typing import Any

from roost.engine.channels.buffer_desk import BufferDesk
from roost.engine.inline_backend.inline_channel import at_once


class InlineBuffer:
    def __init__(self, desk: BufferDesk) -> None:
        self._desk = desk

    def ask(self, method: str, *args: Any) -> Any:
        return at_once(getattr(self._desk, method)(*args))
