"""Raises an error in the program's own code, as Ctrl-C does.

A program that computes or sleeps asks roost nothing, so nothing of roost can raise there. The handler of a signal can,
in the middle of a sleep too. SIGURG is that signal: the system ignores it by default, and hardly a program uses it.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

SIGNAL = signal.SIGURG

_error: Exception | None = None  # to be raised by the handler


def _raise(number: int, frame: FrameType | None) -> None:
    global _error
    error, _error = _error, None
    if error is not None:
        raise error


def may_raise_in_main() -> bool:
    """Prepare for `raise_in_main`. Only the main thread can, and a prompt is left alone, since it would end."""
    if threading.current_thread() is not threading.main_thread() or hasattr(sys, "ps1"):
        return False
    if signal.getsignal(SIGNAL) is signal.SIG_DFL:
        signal.signal(SIGNAL, _raise)
    return signal.getsignal(SIGNAL) is _raise  # else the program has a use for this signal


def raise_in_main(error: Exception) -> None:
    """Called in another thread."""
    global _error
    main = threading.main_thread().ident
    if main is not None and signal.getsignal(SIGNAL) is _raise:
        _error = error
        signal.pthread_kill(main, SIGNAL)


def leave_main_alone() -> None:
    global _error
    _error = None
    if threading.current_thread() is threading.main_thread() and signal.getsignal(SIGNAL) is _raise:
        signal.signal(SIGNAL, signal.SIG_DFL)
