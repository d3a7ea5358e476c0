"""Lets signals wait while code runs in which Python or Ray would lose what their handlers raise."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_signals(*numbers: signal.Signals) -> Iterator[None]:
    """Signals that come meanwhile are handled after this block. Only the main thread runs handlers."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)

    # Blocked in this thread, and noted where another thread takes them.
    handlers = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    for number in handlers:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is note:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for one in came:
            signal.raise_signal(one)
