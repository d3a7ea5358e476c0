"""Keeps the exceptions of the program's signal handlers, which Ray replaces during a wait.

Ray runs pending handlers in the middle of a wait, and turns a handler's `SystemExit(41)` into `SystemExit(1)`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

WATCHED = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def own_exceptions() -> Iterator[None]:
    """Raise a handler's own exception if a handler raises inside the block. Ray does not change KeyboardInterrupt."""
    mine = {
        number: handler
        for number in WATCHED
        if callable(handler := signal.getsignal(number)) and handler is not signal.default_int_handler
    }
    if not mine or threading.current_thread() is not threading.main_thread():
        yield
        return
    raised: list[BaseException] = []

    def noting(number: int, frame: Any) -> None:
        try:
            mine[signal.Signals(number)](number, frame)
        except BaseException as error:
            raised.append(error)
            raise

    for number in mine:
        signal.signal(number, noting)
    try:
        yield
    except BaseException:
        if raised:
            raise raised[-1] from None
        raise
    finally:
        for number, handler in mine.items():
            if signal.getsignal(number) is noting:  # the handler may have installed another one
                signal.signal(number, handler)
