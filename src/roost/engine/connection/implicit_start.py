"""Keeps Ray from starting a cluster for a thread of roost.

Ray connects, or starts a cluster, when a program that is not connected calls one of its functions. A thread of roost
that asks Ray something just as the program disconnects must get an error instead.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ray._private import auto_init_hook

OWN_THREADS = "roost-"  # begins the names of all threads of roost that call Ray


@dataclass(frozen=True, slots=True)
class OutsideOwnThreads:
    """True, if Ray's setting is, in every thread that is not roost's own."""

    setting: object

    def __bool__(self) -> bool:
        return bool(self.setting) and not threading.current_thread().name.startswith(OWN_THREADS)


def keep_out_own_threads() -> None:
    auto_init_hook.enable_auto_connect = OutsideOwnThreads(auto_init_hook.enable_auto_connect)
