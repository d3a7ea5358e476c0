"""The program's signal handlers beside Ray, and an error raised in the program's own code, as Ctrl-C does."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

WATCHED = (signal.SIGTERM, signal.SIGINT)
# A program that computes or sleeps does not call roost, so roost cannot raise there. A signal handler can, even in
# the middle of a sleep. The system ignores this signal by default, and hardly any program uses it.
RAISING = signal.SIGURG
_error: Exception | None = None  # its handler raises this


def in_main_thread() -> bool:
    """Whether this is the main thread, which alone runs and sets signal handlers."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def held_signals(*numbers: signal.Signals) -> Iterator[None]:
    """Handle these signals after the block, in which Python or Ray would lose the exceptions of their handlers.

    Does nothing outside the main thread.
    """
    if not in_main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []
    # Block the signals in this thread, and note those that another thread receives.
    handled = [number for number in numbers if callable(signal.getsignal(number))]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        with _replaced(handled, lambda number, _: came.append(number)):
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for one in came:
            signal.raise_signal(one)


@contextmanager
def own_sigterm() -> Iterator[None]:
    """Keep the program's SIGTERM handler. Ray replaces it with one that exits with code 15.

    A SIGTERM inside the block waits until its end: Ray's handler would end the program in its own way.
    """
    if not in_main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    with held_signals(signal.SIGTERM):
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


@contextmanager
def own_exceptions() -> Iterator[None]:
    """Raise a handler's own exception if a handler raises inside the block. Ray does not change KeyboardInterrupt.

    Ray runs pending handlers in the middle of a wait, and turns a handler's `SystemExit(41)` into `SystemExit(1)`.
    """
    mine = {
        number: handler
        for number in WATCHED
        if callable(handler := signal.getsignal(number)) and handler is not signal.default_int_handler
    }
    if not mine or not in_main_thread():
        yield
        return
    raised: list[BaseException] = []

    def noting(number: int, frame: Any) -> None:
        try:
            mine[signal.Signals(number)](number, frame)
        except BaseException as error:
            raised.append(error)
            raise

    with _replaced(mine, noting):
        try:
            yield
        except BaseException:
            if raised:
                raise raised[-1] from None
            raise


@contextmanager
def _replaced(numbers: Collection[signal.Signals], handler: Callable[[int, Any], None]) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in numbers:
            if signal.getsignal(number) is handler:  # the program may have installed another one
                signal.signal(number, before[number])


def _raise(number: int, frame: FrameType | None) -> None:
    global _error
    error, _error = _error, None
    if error is not None:
        raise error


def may_raise_in_main() -> bool:
    """Prepare for `raise_in_main`. Returns whether it will work.

    It works only if the main thread calls this and the program does not use the signal. At a prompt it is off: the
    error would end the prompt."""
    if not in_main_thread() or hasattr(sys, "ps1"):
        return False
    if signal.getsignal(RAISING) is signal.SIG_DFL:
        signal.signal(RAISING, _raise)
    return signal.getsignal(RAISING) is _raise  # else the program uses this signal


def raise_in_main(error: Exception) -> None:
    """Raise the error in the main thread. Call it in another thread."""
    global _error
    main = threading.main_thread().ident
    if main is not None and signal.getsignal(RAISING) is _raise:
        _error = error
        signal.pthread_kill(main, RAISING)


def leave_main_alone() -> None:
    global _error
    _error = None
    if in_main_thread() and signal.getsignal(RAISING) is _raise:
        signal.signal(RAISING, signal.SIG_DFL)
