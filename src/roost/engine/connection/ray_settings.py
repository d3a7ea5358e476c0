"""Settings for a program whose head is lost.

When the program ends, Ray waits for the head to take its records of calls. While the program runs without a head, Ray
ends it after a minute: one that was told of the loss has ten minutes to save what it has.
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
    """Set them while Ray is imported or connects, when it reads them, unless the program has set them itself.

    They do not stay: nodes of Ray that the program starts would read them too, and outlive their head.
    """
    mine = {name: value for name, value in WITHOUT_A_HEAD.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            del os.environ[name]
