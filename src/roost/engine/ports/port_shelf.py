"""Ports that are held. The kernel keeps them apart, so every job and every Ray of a host sees every lease."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from roost.engine.ports.port_ranges import (
    ALLOWED,
    RANGE_VARIABLE,
    allowed_ports,
    around_from_somewhere,
    ephemeral_ports,
    shuffled,
    text_of,
    without,
)
from roost.errors import ClusterError, ConfigurationError, Finding, shown

MOST = 10_000  # ports in one lease
_TAKEN = (errno.EADDRINUSE, errno.EACCES, errno.EPERM)
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
Held = dict[int, socket.socket]


class PortShelf:
    """Holds ports for owners until they are given back. Every method may be called from any thread."""

    def __init__(self, allowed: range | None = None, ephemeral: range | None = None) -> None:
        self._allowed, self._ephemeral = allowed, ephemeral  # by default what the node says
        self._family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        self._held: Held = {}
        self._owners: dict[Hashable, set[int]] = {}
        self._recent: deque[int] = deque(maxlen=1024)
        self._lock = threading.Lock()

    def take(self, count: int = 1, consecutive: bool = False, owner: Hashable = None) -> list[int]:
        """That many ports or none. They stay taken until they are released or this process ends."""
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
        """Let go of these; ones that are not held are no matter."""
        gone = set(ports)
        with self._lock:
            for owner, theirs in list(self._owners.items()):
                if not gone.isdisjoint(theirs):
                    self._let_go(owner, theirs & gone)

    def release_owner(self, owner: Hashable) -> list[int]:
        """Let go of everything this owner has."""
        with self._lock:
            theirs = sorted(self._owners.get(owner, ()))
            self._let_go(owner, theirs)
        return theirs

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

    # -- finding them ----------------------------------------------------------------------------------

    def _fill(self, taken: Held, count: int, allowed: range) -> bool:
        """Every candidate is tried once, those given back lately last: a successor should not meet the dead."""
        for pieces in without(allowed, self._kernels_own()):
            for port in shuffled(pieces, last=self._recent):
                if self._try(taken, port) and len(taken) == count:
                    return True
        return False

    def _fill_block(self, taken: Held, count: int, allowed: range) -> bool:
        outside, _ = without(allowed, self._kernels_own())
        # At last the whole range, ephemeral ports and all; a block may lie across the border.
        for pieces in (outside, [allowed]):
            for piece in around_from_somewhere(pieces, count):
                for port in piece:
                    if not self._try(taken, port):  # no block holds this one: go on after it
                        _close(taken)
                    elif len(taken) == count:
                        return True
                _close(taken)
        return False

    def _kernels_own(self) -> range:
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
        """A socket that has the port, and never listens.

        The bind is exclusive, so no other holder can have the port, in this job or another. Only then is the
        socket marked reusable: whoever was given the port can listen on it (SO_REUSEADDR, as servers set)
        while we never do, and the kernel gives it to nobody else.
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
            Finding(
                code="RE117",
                what=f"{wanted} free in {text_of(allowed)} on {socket.gethostname()}",
                why=f"this job holds {mine} of these {len(allowed)} ports, and {others}",
                remedy="release leases, or end what listens there (`ss -ltn`)"
                + ("" if allowed == ALLOWED else f", or widen {RANGE_VARIABLE} on the node"),
            )
        )


def _check_count(count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
        raise ConfigurationError(
            Finding(code="RC104", what=f"a lease is of 1 to {MOST:,} ports, not {shown(count)}")
        )


def _with_descriptors(make: Callable[[], socket.socket]) -> socket.socket:
    """Make a socket, with as many open files as this process may have at most."""
    try:
        return make()
    except OSError as error:
        if error.errno != errno.EMFILE or not _raise_limit():
            raise
    return make()


def _raise_limit() -> bool:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return soft != hard
    return False


def _cannot_hold(error: OSError, count: int, held: int) -> ClusterError:
    descriptors = error.errno in _NO_DESCRIPTORS
    return ClusterError(
        Finding(
            code="RE117",
            what=f"{count} more ports cannot be held on {socket.gethostname()}, besides {held} of this job",
            why="each needs a file descriptor, and there are no more" if descriptors else str(error),
            remedy="raise the limit of open files (`ulimit -Hn`) where Ray is started, or release leases"
            if descriptors
            else "",
        )
    )


def _close(held: Held) -> None:
    for holder in held.values():
        holder.close()
    held.clear()
