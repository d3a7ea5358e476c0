"""Raises an error in the program's own code, as Ctrl-C does.

A program that computes or sleeps does not call roost, so roost cannot raise there. A signal handler can, even in the
middle of a sleep. roost uses SIGURG: the system ignores it by default, and hardly any program uses it.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

SIGNAL = signal.SIGURG

_error: Exception | None = None  # the handler raises this


def _raise(number: int, frame: FrameType | None) -> None:
    global _error
    error, _error = _error, None
    if error is not None:
        raise error


def may_raise_in_main() -> bool:
    """Prepare for `raise_in_main`. Returns whether it will work.

    It works only if the main thread calls this and the program does not use the signal. At a prompt it is off: the
    error would end the prompt."""
    if threading.current_thread() is not threading.main_thread() or hasattr(sys, "ps1"):
        return False
    if signal.getsignal(SIGNAL) is signal.SIG_DFL:
        signal.signal(SIGNAL, _raise)
    return signal.getsignal(SIGNAL) is _raise  # else the program uses this signal


def raise_in_main(error: Exception) -> None:
    """Raise the error in the main thread. Call it in another thread."""
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
