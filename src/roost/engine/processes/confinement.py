"""Confines a process's children: they end when the process ends."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import logging
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from roost.engine.processes import keeper
from roost.errors import LaunchError

log = logging.getLogger("roost")

START_WITHIN = 30.0
_SET_CHILD_SUBREAPER = 36
_lock = threading.Lock()
_numbers = itertools.count(1)
_tokens: dict[int, str] = {}  # by process number, because a forked child inherits this dict
_confined = 0  # the number of the process that is confined


def confine() -> None:
    """Make all children of this process end within seconds of it, however it ends.

    Children that leave their session, fork twice or clear their environment end too. So do children started
    earlier, as long as they are still below this process.
    """
    global _confined
    with _lock:
        if _confined == os.getpid():
            return
        if not _proc_is_ours():
            log.warning(
                "children of process %d may outlive it: there is no /proc here to find them in", os.getpid()
            )
        else:
            # Start the keeper first, so that this process neither adopts nor marks it.
            _start_own_keeper(_token())
            if not _become_subreaper():
                log.warning(
                    "daemons started by process %d may outlive it: there is no prctl here", os.getpid()
                )
            put_mark(os.getpid(), keeper.mark_of(_token()))
        os.environ[keeper.VARIABLE] = _token()
        _confined = os.getpid()


def leave_nothing(node_id: str) -> None:
    """Make all children of this worker end when it ends. One keeper serves all workers of a node.

    Unlike `confine`, this needs no process for each worker, and misses children that drop their mark on purpose.
    """
    name, mark = f"\0roost-keeper-{node_id}", keeper.mark_of(secrets.token_hex(16))
    deadline = time.monotonic() + START_WITHIN
    try:
        while not _is_adopted(name, mark):
            if time.monotonic() >= deadline:
                raise TimeoutError(f"it has not answered in {START_WITHIN:g} s")
            _offer_keeper(name)
    except (AttributeError, OSError, LaunchError) as error:
        log.warning("children of process %d may outlive it: it has no keeper (%s)", os.getpid(), error)


def _is_adopted(name: str, mark: int) -> bool:
    """Whether the keeper of this name watches this process now. False if there is none, or it was just ending."""
    with socket.socket(socket.AF_UNIX) as to_keeper:
        to_keeper.settimeout(START_WITHIN)
        try:
            to_keeper.connect(name)
            if keeper.peer_of(to_keeper)[1] != os.getuid():
                raise PermissionError("another user has taken its address")
            put_mark(os.getpid(), mark)
            to_keeper.sendall(keeper.MARK.pack(mark))
            return to_keeper.recv(1) == keeper.ADOPTED
        except ConnectionError:
            return False


def _offer_keeper(name: str) -> None:
    """Start the keeper of this name, unless another worker just does so."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(0.005)  # seconds; it will listen in a moment, or end
            return
        server.listen(1024)
        _start_keeper(listening=[server.fileno()])


class Family:
    """A child of this process and all its descendants, including those that leave its process tree.

    Start the child with `variables` in its environment, then pass its number to `head`.
    """

    def __init__(self) -> None:
        self._mark = keeper.mark_of(_token(), next(_numbers) % 2**keeper.NUMBERS)
        self.variables = {"ROOST_FAMILY": str(self._mark)}
        self._known: dict[int, int] = {}

    def head(self, pid: int) -> None:
        # The variable marks children it started before this line, the limit those that clear their environment.
        put_mark(pid, self._mark)
        status = keeper.status_of(pid)
        if status is not None:
            self._known[pid] = status.start

    def living(self) -> dict[int, int]:
        """The living members: process numbers and start times."""
        for pid in keeper.all_processes():
            status = keeper.status_of(
                pid
            )  # before the mark: `family` checks that the process is still the same
            marked = keeper.mark_on(pid) == self._mark or keeper.was_given(pid, self.variables)
            if status is not None and marked:
                self._known[pid] = status.start
        found = keeper.family(self._known)
        self._known.update(found)
        return found

    def signal(self, number: int) -> bool:
        """Signal the whole family. Returns whether any of it was alive."""
        found = self.living()
        for pid, start in found.items():
            keeper.send(pid, start, number)
        return bool(found)

    def collect(self, but: int) -> None:
        """Collect ended orphans: this process adopted them, so no other process can."""
        for pid, start in self._known.items():
            status = keeper.status_of(pid)
            if pid != but and status is not None and status.start == start and status.ended:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def put_mark(pid: int, mark: int) -> None:
    """Mark a process and its future children. Unmarked processes are found by the process tree only."""
    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_RTTIME)
        resource.prlimit(pid, resource.RLIMIT_RTTIME, (mark, hard))
    except (AttributeError, OSError, ValueError) as error:
        log.debug("process %d has no mark: %s", pid, error)


def _token() -> str:
    return _tokens.setdefault(os.getpid(), secrets.token_hex(16))


def _proc_is_ours() -> bool:
    try:
        return os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115
    except OSError:
        return False


def _become_subreaper() -> bool:
    try:
        return ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (AttributeError, OSError):
        return False


def _start_own_keeper(token: str) -> None:
    status = keeper.status_of(os.getpid())
    assert status is not None
    _start_keeper(os.getpid(), status.start, token)


def _start_keeper(*words: object, listening: Sequence[int] = ()) -> None:
    try:
        started = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, *map(str, (*words, *listening))],
            pass_fds=listening,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # until it is ready
            stderr=subprocess.STDOUT,
            cwd="/",
            env={name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"},
            start_new_session=True,
        )
    except OSError as error:
        raise _no_keeper(f"{type(error).__name__}: {error}") from error
    try:
        said, _ = started.communicate(timeout=START_WITHIN)
    except subprocess.TimeoutExpired:
        # The keeper and its fork. Nothing has collected the keeper, so the number is still its own.
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        assert started.stdout
        started.stdout.close()
        raise _no_keeper(f"it was not ready in {START_WITHIN:g} s") from None
    if said != b"ready":
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        raise _no_keeper(f"it ended with {started.returncode}: {''.join(last)}"[:400])


def _no_keeper(why: str) -> LaunchError:
    return LaunchError(
        code="RE120",
        what=f"the keeper of process {os.getpid()} could not be started, so its children could outlive it",
        why=why,
        remedy=f"does {sys.executable or 'sys.executable, which is empty,'} run here, and may this user start more processes?",
    )
