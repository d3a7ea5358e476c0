"""Holds ports by binding sockets to them, so the kernel refuses them to every other job on the host."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from roost.engine.ports.port_ranges import (
    ALLOWED,
    RANGE_VARIABLE,
    allowed_ports,
    ephemeral_ports,
    rotated,
    shuffled,
    split_by,
    text_of,
)
from roost.errors import ClusterError, ConfigurationError, shown

MOST = 10_000  # ports in one lease
_TAKEN = (errno.EADDRINUSE, errno.EACCES, errno.EPERM)
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
Held = dict[int, socket.socket]


class PortShelf:
    """Holds ports for their owners until they are released. Safe to use from several threads."""

    def __init__(self, allowed: range | None = None, ephemeral: range | None = None) -> None:
        self._allowed, self._ephemeral = allowed, ephemeral  # None: read from the node
        self._family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        self._held: Held = {}
        self._owners: dict[Hashable, set[int]] = {}
        self._recent: deque[int] = deque(maxlen=1024)
        self._lock = threading.Lock()

    def take(self, count: int = 1, consecutive: bool = False, owner: Hashable = None) -> list[int]:
        """Take `count` ports or none. They stay taken until they are released or this process ends."""
        _check_count(count)
        allowed = self._allowed if self._allowed is not None else allowed_ports(os.environ)
        with self._lock:
            taken: Held = {}
            try:
                if consecutive:
                    complete = self._fill_block(taken, count, allowed)
                else:
                    complete = self._fill(taken, count, allowed)
                if not complete:
                    raise self._ran_out(count, consecutive, allowed)
            except BaseException as error:
                _close(taken)
                if isinstance(error, OSError):
                    raise _cannot_hold(error, count, len(self._held)) from error
                raise
            self._held.update(taken)
            self._owners.setdefault(owner, set()).update(taken)
            return sorted(taken) if consecutive else list(taken)

    def release(self, ports: Iterable[int]) -> None:
        """Release these ports. Ports that are not held are ignored."""
        released = set(ports)
        with self._lock:
            for owner, owned in list(self._owners.items()):
                if not released.isdisjoint(owned):
                    self._let_go(owner, owned & released)

    def release_owner(self, owner: Hashable) -> list[int]:
        """Release all ports of this owner."""
        with self._lock:
            owned = sorted(self._owners.get(owner, ()))
            self._let_go(owner, owned)
        return owned

    def close(self) -> None:
        self.release(self.held)

    @property
    def held(self) -> list[int]:
        with self._lock:
            return sorted(self._held)

    @property
    def owners(self) -> list[Hashable]:
        with self._lock:
            return list(self._owners)

    def _let_go(self, owner: Hashable, ports: Iterable[int]) -> None:
        for port in list(ports):
            self._held.pop(port).close()
            self._owners[owner].discard(port)
            self._recent.append(port)
        if not self._owners.get(owner, True):
            del self._owners[owner]

    # -- finding ports ----------------------------------------------------------------------------------

    def _fill(self, taken: Held, count: int, allowed: range) -> bool:
        """Try each port once. Reuse released ports last: late packets for the old owner may still arrive."""
        for ranges in split_by(self._ephemeral_ports(), allowed):
            for port in shuffled(ranges, last=self._recent):
                if self._try(taken, port) and len(taken) == count:
                    return True
        return False

    def _fill_block(self, taken: Held, count: int, allowed: range) -> bool:
        outside, _ = split_by(self._ephemeral_ports(), allowed)
        # Then the whole range including ephemeral ports: a block may lie partly inside them.
        for ranges in (outside, [allowed]):
            for ports in rotated(ranges, count):
                for port in ports:
                    if not self._try(taken, port):  # no block can contain this port: start again after it
                        _close(taken)
                    elif len(taken) == count:
                        return True
                _close(taken)
        return False

    def _ephemeral_ports(self) -> range:
        return self._ephemeral if self._ephemeral is not None else ephemeral_ports()

    def _try(self, taken: Held, port: int) -> bool:
        if port in self._held:
            return False
        holder = self._bound(port)
        if holder is None:
            return False
        taken[port] = holder
        return True

    def _bound(self, port: int) -> socket.socket | None:
        """A socket bound to the port that never listens; None when the port is taken.

        The bind is exclusive, so no other shelf can bind the port. Afterwards the socket is marked reusable:
        a server that sets SO_REUSEADDR, as servers do, can listen on the port, because this socket does not,
        and the kernel does not give the port to programs that ask for any port.
        """
        holder = _with_descriptors(lambda: socket.socket(self._family))
        try:
            if self._family == socket.AF_INET6:
                holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            holder.bind(("", port))
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError as error:
            holder.close()
            if error.errno in _TAKEN:
                return None
            if error.errno in _NO_IPV6 and self._family == socket.AF_INET6:  # compiled in, switched off
                self._family = socket.AF_INET
                return self._bound(port)
            raise
        return holder

    def _ran_out(self, count: int, consecutive: bool, allowed: range) -> ClusterError:
        wanted = "no port is" if count == 1 else f"{count} {'consecutive ' * consecutive}ports are not"
        others = "too few of the others stand together" if consecutive else "the others are in use"
        mine = sum(port in allowed for port in self._held)
        return ClusterError(
            code="RE117",
            what=f"{wanted} free in {text_of(allowed)} on {socket.gethostname()}",
            why=f"this job holds {mine} of these {len(allowed)} ports, and {others}",
            remedy="release leases, or end what listens there (`ss -ltn`)"
            + ("" if allowed == ALLOWED else f", or widen {RANGE_VARIABLE} on the node"),
        )


def _check_count(count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
        raise ConfigurationError(code="RC104", what=f"a lease is of 1 to {MOST:,} ports, not {shown(count)}")


def _with_descriptors(make: Callable[[], socket.socket]) -> socket.socket:
    """Make a socket. If this process has too many open files, raise its limit first."""
    try:
        return make()
    except OSError as error:
        if error.errno != errno.EMFILE or not _raise_limit():
            raise
    return make()


def _raise_limit() -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return soft != hard
    return False


def _cannot_hold(error: OSError, count: int, held: int) -> ClusterError:
    descriptors = error.errno in _NO_DESCRIPTORS
    return ClusterError(
        code="RE117",
        what=f"{count} more ports cannot be held on {socket.gethostname()}, besides {held} of this job",
        why="each needs a file descriptor, and there are no more" if descriptors else str(error),
        remedy="raise the limit of open files (`ulimit -Hn`) where Ray is started, or release leases"
        if descriptors
        else "",
    )


def _close(held: Held) -> None:
    for holder in held.values():
        holder.close()
    held.clear()
