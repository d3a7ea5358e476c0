"""What the program does at a signal stays its own, although Ray is loaded."""

from __future__ import annotations

import atexit
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ray


@contextmanager
def own_sigterm() -> Iterator[None]:
    """Ray would end the program with code 15 at SIGTERM, in place of what the program itself has set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _end_as_interrupted() -> None:
    """After Ctrl-C, Python ends by SIGINT, which shells and schedulers look for. Running code from a string
    makes it forget, and Ray's hook at exit imports modules that do. So that is done first, and then told again.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        ray.shutdown()
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


atexit.register(_end_as_interrupted)  # Ray was imported before, so its own hook runs after
