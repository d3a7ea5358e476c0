"""Kills the processes that an engine leaves behind. Run as a script: `keeper.py PID START TOKEN`.

As `keeper.py SOCKET` it does so for all workers of a node that connect to the socket. It knows their descendants by
their marks alone, and looks for them only when a worker has ended.

The keeper runs outside the engine's process tree, group and session, so that a signal that kills the engine does
not reach the keeper. While the engine lives, the keeper notes the engine's descendants; once the engine has ended,
the keeper kills those that are left.

The keeper takes a process for a descendant if one of these holds:

- the keeper saw it below the engine, or below another descendant. The system uses process numbers again, so the
  keeper knows a process by its number and its start time;
- it has the engine's mark in its limit on realtime computing, a limit of many thousand years that does nothing.
  Children inherit limits, whether they leave their session, clear their environment or rewrite it for a title;
- it was started with the engine's mark in its environment.

It imports little of the standard library and nothing else: every engine waits for its keeper to start.
"""

# pathlib alone would take longer to import than everything here.
# ruff: noqa: PTH110, PTH123, PTH208

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys
import time

VARIABLE = "ROOST_CONFINED"
LOOK_EVERY = 0.2  # seconds
END_WITHIN = 10.0
LEAST_MARK = 2**61  # in microseconds; a program may set a smaller limit on purpose
NUMBERS = 16  # bits of a mark that number the families of one engine
MARK = struct.Struct("<Q")  # as a worker tells it
ADOPTED = b"1"
TELL_WITHIN = 2.0  # seconds that a worker has to tell its mark; others wait meanwhile
LINGER = 1.0  # seconds without a worker after which their keeper ends
_PEER = struct.Struct("3i")  # process, user, group
CHILDREN_LISTED = os.path.exists("/proc/thread-self/children")  # some kernels are built without it


class ProcessState:
    """The state of a process in /proc. A zombie counts as ended."""

    __slots__ = ("ended", "parent", "start", "stopped")

    def __init__(self, ended: bool, parent: int, start: int, stopped: bool = False) -> None:
        self.ended, self.parent, self.start, self.stopped = ended, parent, start, stopped


def status_of(pid: int) -> ProcessState | None:
    """The state of a process; None if /proc does not show it."""
    stat = contents(f"/proc/{pid}/stat")
    if not stat:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # a name may hold anything, even a parenthesis
    ended, stopped = fields[0] in (b"Z", b"X"), fields[0] in (b"T", b"t")
    return ProcessState(ended, int(fields[1]), int(fields[19]), stopped)


def contents(path: str) -> bytes:
    """The bytes of a file; empty if its process has ended or belongs to another user."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def family(roots: dict[int, int]) -> dict[int, int]:
    """The living processes among these, and their living descendants: numbers and start times."""
    by_parent = None if CHILDREN_LISTED else all_processes_by_parent()
    found: dict[int, int] = {}
    waiting = list(roots.items())
    while waiting:
        pid, start = waiting.pop()
        if pid in found:
            continue
        numbers = listed_children(pid) if by_parent is None else by_parent.get(pid, [])
        children = []
        for number in numbers:
            child = status_of(number)
            if child is not None and child.parent == pid:
                children.append((number, child.start))
        status = status_of(pid)  # read after its children: if the process is still the same, they are its own
        if status is not None and status.start == start:
            waiting += children
            if not status.ended:
                found[pid] = start
    return found


def listed_children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [int(child) for t in threads for child in contents(f"/proc/{pid}/task/{t}/children").split()]


def all_processes_by_parent() -> dict[int, list[int]]:
    by_parent: dict[int, list[int]] = {}
    for pid in all_processes():
        status = status_of(pid)
        if status is not None:
            by_parent.setdefault(status.parent, []).append(pid)
    return by_parent


def all_processes() -> set[int]:
    try:
        return {int(name) for name in os.listdir("/proc") if name.isdigit()}
    except OSError:
        return set()


def mark_of(token: str, number: int = 0) -> int:
    """The limit that marks the descendants of an engine, or, with a number, one family of descendants."""
    return LEAST_MARK + (int(token[:11], 16) << NUMBERS) + number


def mark_on(pid: int) -> int:
    for line in contents(f"/proc/{pid}/limits").splitlines():
        if line.startswith(b"Max realtime timeout"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else 0
    return 0


def has_mark(pid: int, token: str) -> bool:
    if mark_on(pid) >> NUMBERS == mark_of(token) >> NUMBERS:
        return True
    return was_given(pid, {VARIABLE: token})


def was_given(pid: int, variables: dict[str, str]) -> bool:
    """Whether the process was started with these variables."""
    environ = contents(f"/proc/{pid}/environ").split(b"\0")
    return all(f"{name}={value}".encode() in environ for name, value in variables.items())


def send(pid: int, start: int, number: int) -> None:
    """Signal this process, and no later process with the same number."""
    handle = None
    try:
        if hasattr(os, "pidfd_open"):
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                return
            except OSError:  # an older kernel
                handle = None
        status = status_of(pid)
        if status is None or status.start != start:
            return
        if handle is not None:
            signal.pidfd_send_signal(handle, number)  # type: ignore[attr-defined]
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        if handle is not None:
            os.close(handle)


def is_keeper(pid: int) -> bool:
    """Whether the process is the keeper of another engine. A keeper finishes its work and ends by itself."""
    return contents(f"/proc/{pid}/cmdline").split(b"\0")[3:4] == [os.fsencode(__file__)]


def kill_all(known: dict[int, int], token: str, spared: set[int]) -> None:
    """Kill these processes, their descendants and all marked processes, until two searches find none."""
    deadline = time.monotonic() + END_WITHIN
    strangers = set(spared)
    quiet = 0
    while quiet < 2 and time.monotonic() < deadline:
        found = kill_families(known, spared)
        # Look at the newest process first, kill it at once, and look at none twice: only a quick search meets a
        # process that forks and exits all the time.
        present = all_processes()
        strangers &= present
        for pid in sorted(present - strangers, reverse=True):
            status = status_of(pid)
            if status is None or status.ended:
                continue
            if has_mark(pid, token):
                found.update(kill_families({pid: status.start}, spared))
            else:
                strangers.add(pid)
        quiet = 0 if found else quiet + 1
        if found.keys() <= known.keys():  # only processes that are already being killed
            time.sleep(0.02)
        known = found


def kill_families(roots: dict[int, int], spared: set[int]) -> dict[int, int]:
    found = {
        pid: start
        for pid, start in family(roots).items()  # the whole family first: killing a parent hides its children
        if pid not in spared and not is_keeper(pid)
    }
    for pid, start in found.items():
        send(pid, start, signal.SIGKILL)
    return found


def keep(pid: int, start: int, token: str) -> None:
    end = select.poll()
    try:
        handle = os.pidfd_open(pid)
        end.register(handle, select.POLLIN)
    except (AttributeError, OSError):
        pass  # the poll only sleeps then
    known = family({pid: start})
    detach()
    spared = {1, os.getpid()}
    while (engine := status_of(pid)) and engine.start == start and not engine.ended:
        spared = {1, os.getpid(), engine.parent}
        # Follow known descendants too: without a subreaper they may have left the engine's tree.
        known = family({**known, pid: start})
        end.poll(LOOK_EVERY * 1000)
    known.pop(pid, None)
    kill_all(known, token, spared)


def keep_workers(listening: int) -> None:
    """Kill what each worker leaves behind. Workers connect, tell their mark, and are answered once they are watched."""
    server = socket.socket(fileno=listening)
    change = select.poll()
    change.register(server, select.POLLIN)
    workers: dict[int, tuple[int, int]] = {}  # by process number: the start time and the mark
    handles: dict[int, int] = {}
    detach()
    while True:
        every = LINGER if not workers else LOOK_EVERY if handles.keys() != workers.keys() else None
        ready = {descriptor for descriptor, _ in change.poll(every and every * 1000)}
        if not ready and not workers:
            return  # a worker that connects later starts another keeper
        ended = [pid for pid, (start, _) in workers.items() if not lives(pid, start)]
        marks = {workers.pop(pid)[1] for pid in ended}
        for handle in [handles.pop(pid) for pid in ended if pid in handles]:
            change.unregister(handle)
            os.close(handle)
        if listening in ready:
            with server.accept()[0] as client:
                for pid, start, mark in adopted(client):
                    workers[pid] = (start, mark)
                    try:
                        handles[pid] = os.pidfd_open(pid)
                        change.register(handles[pid], select.POLLIN)
                    except (AttributeError, OSError):
                        pass  # an older kernel, or it has just ended: the next look finds that
        if marks:
            kill_marked(marks)


def lives(pid: int, start: int) -> bool:
    status = status_of(pid)
    return status is not None and status.start == start and not status.ended


def adopted(client: socket.socket) -> list[tuple[int, int, int]]:
    """The worker at the other end: its number, start time and mark. Empty if it is none of this user's."""
    try:
        pid, user = peer_of(client)
        if user != os.getuid():
            return []
        client.settimeout(TELL_WITHIN)
        told, status = client.recv(MARK.size), status_of(pid)
        mark = MARK.unpack(told)[0] if len(told) == MARK.size else 0
        if mark < LEAST_MARK or status is None:
            return []
        client.sendall(ADOPTED)
    except OSError:  # it has ended, or is stopped; one that goes on connects again
        return []
    return [(pid, status.start, mark)]


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The process at the other end, and its user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, user, _ = _PEER.unpack(credentials)
    return pid, user


def kill_marked(marks: set[int]) -> None:
    """Kill all processes with one of these marks, until two searches find none."""
    deadline = time.monotonic() + END_WITHIN
    quiet = 0
    while quiet < 2 and time.monotonic() < deadline:
        quiet += 1
        for pid in all_processes():
            status = status_of(pid)  # before the mark: `send` checks that the process is still the same
            if status and not status.ended and mark_on(pid) in marks and not is_keeper(pid):
                send(pid, status.start, signal.SIGKILL)
                quiet = 0
        if not quiet:
            time.sleep(0.02)


def detach() -> None:
    """Tell the engine that the keeper watches, and close the engine's pipe."""
    os.write(1, b"ready")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.close(nothing)


def outlive() -> None:
    """Ignore signals: the keeper ends only after the engine has ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Ray lets the kernel kill its workers first when memory runs out. The keeper inherits that setting.
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:
            if int(file.read()) > 0:
                file.seek(0)
                file.write("0")
    except (OSError, ValueError):
        pass


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # so that the engine is not the keeper's parent
    outlive()
    if len(sys.argv) == 2:
        keep_workers(int(sys.argv[1]))
    else:
        keep(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
