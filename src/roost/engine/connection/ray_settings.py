"""Ray settings for a program that loses its head.

When the program ends, Ray waits for the head to take its records of calls; here it waits half a second. Without a
head, Ray ends a running program after a minute; here the program has ten minutes to save its state.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

WITHOUT_A_HEAD = {
    "RAY_task_events_shutdown_flush_timeout_ms": "500",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
}


@contextmanager
def settings_without_a_head() -> Iterator[None]:
    """Set these while Ray is imported or connects, which is when Ray reads them. The program's own values win.

    They are removed after the block: Ray nodes that the program starts would read them too, and outlive their head.
    """
    mine = {name: value for name, value in WITHOUT_A_HEAD.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            del os.environ[name]
