"""Delays signals during code in which Python or Ray would lose the exceptions of their handlers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_signals(*numbers: signal.Signals) -> Iterator[None]:
    """Handle these signals after the block. Does nothing outside the main thread, which alone runs handlers."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)

    # Block the signals in this thread, and note those that another thread receives.
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
