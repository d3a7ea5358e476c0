"""Restores the signal handlers that Ray replaces."""

from __future__ import annotations

import atexit
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from roost.engine.connection.held_signals import held_signals


@contextmanager
def own_sigterm() -> Iterator[None]:
    """Keep the program's SIGTERM handler. Ray replaces it with one that exits with code 15.

    A SIGTERM inside the block waits until its end: Ray's handler would end the program in its own way.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    with held_signals(signal.SIGTERM):
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _end_as_interrupted() -> None:
    """Let the program end by SIGINT after Ctrl-C, as shells and schedulers expect.

    Python forgets the Ctrl-C when code from a string runs, and Ray's exit hook imports modules that run such
    code. So disconnect from Ray first, then raise KeyboardInterrupt again.
    """
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        ray.shutdown()
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")


atexit.register(_end_as_interrupted)  # runs before Ray's own hook, because Ray was imported earlier
