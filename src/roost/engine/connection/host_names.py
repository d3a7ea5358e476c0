"""Resolves host names, all at once, within one deadline."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Collection
from queue import Empty, SimpleQueue

from roost.inventory.ordering import address_key

TIMEOUT = 2.0  # seconds for all names together
_THREADS = 32


def _address(name: str) -> str | None:
    """The lowest address of a host, IPv4 before IPv6: name servers give several in any order."""
    try:
        entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a label of a name can be too long for its encoding
        return None
    return min((str(entry[4][0]) for entry in entries), key=address_key, default=None)


def addresses_of(
    names: Collection[str], timeout: float = TIMEOUT, lookup: Callable[[str], str | None] = _address
) -> dict[str, str]:
    """The addresses of the names that resolve in time."""
    deadline = time.monotonic() + timeout
    waiting: SimpleQueue[str] = SimpleQueue()
    answers: SimpleQueue[tuple[str, str | None]] = SimpleQueue()
    for name in names:
        waiting.put(name)

    def work() -> None:
        while time.monotonic() < deadline:
            try:
                name = waiting.get_nowait()
            except Empty:
                return
            answers.put((name, lookup(name)))

    for _ in range(min(len(names), _THREADS)):
        # A daemon: a call of the system's resolver cannot be cancelled, and must not delay the program's end.
        threading.Thread(target=work, name="roost-host-names", daemon=True).start()
    found: dict[str, str] = {}
    for _ in names:
        try:
            name, address = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        if address is not None:
            found[name] = address
    return found
