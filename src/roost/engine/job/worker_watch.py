"""Watches the workers of one node, for the node's agent. Each worker is watched by itself, so no failure hides another.

A pidfd shows at once that a process has ended. A worker's own thread writes heartbeats into its call log; they stop
when the process is stopped or one thread holds the interpreter.
"""

from __future__ import annotations

import asyncio
import fcntl
import math
import os
import re
import signal
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from roost.engine.events import Event
from roost.engine.processes import keeper
from roost.engine.processes.log_files import BLOCKING, NOISE
from roost.engine.processes.process_facts import Process, process_of, raylet_pid
from roost.engine.workers.call_log import CallReader
from roost.secret_names import hide_rest

LOOK_EVERY = 0.5  # seconds between two looks at the heartbeats
MISSED = 3  # heartbeats
OOM_WITHIN = 5.0  # seconds in which a process that the kernel kills for want of memory ends
TAIL_LINES, TAIL_BYTES, TAIL_WIDTH = 5, 8_192, 200
_SIGNALLED = re.compile(r"^\*\*\* (SIG[A-Z]+) received", re.MULTILINE)  # Ray writes this for crashes
# Since Linux 6.15 a pidfd tells any process how its process ended, not only the parent.
_INFO = struct.Struct("<QQ11Ii")
_GET_INFO = (3 << 30) | (_INFO.size << 16) | (0xFF << 8) | 11
_HAS_EXIT = 8
_UNCOLLECTED = (
    -1
)  # as a status: the parent has not taken note of the end, and the kernel tells nothing before
COLLECTED_WITHIN, COLLECTED_LOOKS = 0.1, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedWorker:
    process: Process
    group: str
    rank: int
    generation: int
    node: int  # its rank in the job
    seat: str = ""  # its node and devices, in words
    ping: float = 10.0
    logs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """The loss of a worker, which ended, hangs, or goes on after it hung; or of the whole node if `worker` is None."""

    kind: str  # "ended", "hung", "resumed" or "node"
    worker: WatchedWorker | None = None
    status: int | None = None  # its wait status; None if the system does not tell
    out_of_memory: bool = False
    seen: float = 0.0  # seconds since the epoch
    tail: tuple[str, ...] = ()  # the last lines of its log

    @property
    def how(self) -> str:
        if self.kind == "hung":
            return "hangs: it is stopped, or one thread holds the interpreter"
        if self.kind == "resumed":
            return "hung, and goes on"
        if self.status is None:
            return "ended without a word, as SIGKILL does it; this system tells no more"
        code = os.waitstatus_to_exitcode(self.status)
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"

    @property
    def last_words(self) -> str:
        """The path and the last lines of the worker's log."""
        log = next(filter(None, self.worker.logs), "") if self.worker and self.kind != "resumed" else ""
        said = " | ".join(self.tail)
        return f"its log {log}" + (f" ends: {said}" if said else " is empty") if log else ""


def loss_event(loss: Loss, cause: str, action: str, more: str = "") -> Event:
    """The event about a lost worker and the action taken."""
    worker = loss.worker
    assert worker is not None
    parts = (worker.seat, f"pid {worker.process.pid} {loss.how}", loss.last_words, more)
    return Event(
        time=loss.seen,
        action=action,
        component=worker.group,
        rank=worker.rank,
        node=worker.node,
        cause=cause,
        detail="; ".join(filter(None, parts)),
    )


@dataclass(slots=True)
class _Watch:
    worker: WatchedWorker
    reader: CallReader | None
    pidfd: int
    beats: int = 0
    silent: float = 0.0  # seconds without a heartbeat, while the agent ran
    hung: bool = False


class WorkerWatch:
    def __init__(self, on_loss: Callable[[Loss], None] = lambda _: None) -> None:
        self._on_loss = on_loss
        self.losses: list[Loss] = []
        self.changed = asyncio.Event()  # replaced after each loss
        self._watched: dict[Process, _Watch] = {}
        self._ticker: asyncio.Task[None] | None = None
        self._kills, self._kills_rose = _oom_kills(), -math.inf  # by the kernel, and when one was seen
        self._raylet = process_of(raylet_pid())
        self._raylet_fd = -1

    def add(self, worker: WatchedWorker, reader: CallReader | None) -> None:
        if worker.process in self._watched:
            return
        loop = asyncio.get_running_loop()
        if not self._watched:
            self._kills = _oom_kills()  # those before its first worker are none of this watch
        if self._raylet_fd < 0 and (handle := _pidfd(self._raylet.pid)) >= 0:
            self._raylet_fd = handle
            loop.add_reader(handle, self._node_ended)
        watch = self._watched[worker.process] = _Watch(worker, reader, _pidfd(worker.process.pid))
        if watch.pidfd >= 0:
            loop.add_reader(watch.pidfd, self._ended, worker.process)
        if not worker.process.alive():  # it ended before it was watched
            self._ended(worker.process)
        if self._ticker is None or self._ticker.done():
            self._ticker = loop.create_task(self._tick())

    def forget(self, processes: Iterable[Process]) -> None:
        for process in processes:
            watch = self._watched.pop(process, None)
            if watch is not None and watch.pidfd >= 0:
                asyncio.get_running_loop().remove_reader(watch.pidfd)
                os.close(watch.pidfd)

    def loss_of(self, process: Process) -> Loss | None:
        of_it = (loss for loss in reversed(self.losses) if loss.worker and loss.worker.process == process)
        latest = next(of_it, None)
        return None if latest is None or latest.kind == "resumed" else latest

    @property
    def processes(self) -> list[Process]:
        return list(self._watched)

    def is_hung(self, process: Process) -> bool:
        watch = self._watched.get(process)
        return watch is not None and watch.hung

    def _ended(self, process: Process, looks: int = COLLECTED_LOOKS) -> None:
        watch = self._watched.get(process)
        if watch is None:
            return
        status = _exit_status(watch.pidfd) if watch.pidfd >= 0 else None
        if status == _UNCOLLECTED and looks:
            loop = asyncio.get_running_loop()
            loop.remove_reader(watch.pidfd)  # it stays readable
            loop.call_later(COLLECTED_WITHIN / COLLECTED_LOOKS, self._ended, process, looks - 1)
            return
        if status is None or status <= 0:  # with 0 Ray ends a process that called sys.exit
            told = _told_status(watch)
            status = 0 if status == 0 and told is None else told
        self.forget([process])
        if not self._raylet.alive():  # the workers end because the node does
            self._node_ended()
            return
        self._look_at_kills()
        killed = status is None or os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        self._tell(
            Loss(
                kind="ended",
                worker=watch.worker,
                status=status,
                out_of_memory=killed and time.monotonic() - self._kills_rose <= OOM_WITHIN,
                seen=time.time(),
                tail=tail_of(watch.worker.logs),
            )
        )

    def _node_ended(self) -> None:
        if self._raylet_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._raylet_fd)
            os.close(self._raylet_fd)
            self._raylet_fd = -1
        if not any(loss.kind == "node" for loss in self.losses):
            self._tell(Loss(kind="node", seen=time.time()))

    def _tell(self, loss: Loss) -> None:
        self.losses.append(loss)
        self._on_loss(loss)
        self.changed.set()
        self.changed = asyncio.Event()

    async def _tick(self) -> None:
        """Check the heartbeats until no worker is left. Time in which the agent itself did not run does not count."""
        last = time.monotonic()
        self._kills = _oom_kills()
        while self._watched:
            every = min([LOOK_EVERY, *(watch.worker.ping / 4 for watch in self._watched.values())])
            await asyncio.sleep(every)
            now = time.monotonic()
            passed, last = min(now - last, 2 * every), now
            self._look_at_kills()
            for watch in list(self._watched.values()):
                self._look(watch, passed)

    def _look_at_kills(self) -> None:
        kills = _oom_kills()
        if kills > self._kills:
            self._kills, self._kills_rose = kills, time.monotonic()

    def _look(self, watch: _Watch, passed: float) -> None:
        if watch.pidfd < 0 and not watch.worker.process.alive():
            self._ended(watch.worker.process)
            return
        if watch.reader is None:
            return
        beats, worker = watch.reader.beats(), watch.worker
        if beats != watch.beats:
            if watch.hung:
                self._tell(Loss(kind="resumed", worker=worker, seen=time.time()))
            watch.beats, watch.silent, watch.hung = beats, 0.0, False
            return
        watch.silent += passed
        if not watch.hung and watch.silent >= MISSED * worker.ping:
            watch.hung = True
            self._tell(Loss(kind="hung", worker=worker, seen=time.time(), tail=tail_of(worker.logs)))


def kill(process: Process) -> None:
    """Kill a process of this node, even a stopped one."""
    keeper.send(process.pid, process.started, signal.SIGKILL)


def tail_of(logs: Iterable[str]) -> tuple[str, ...]:
    """The last lines of the first log that has any, without values that look secret."""
    for path in logs:
        lines = [
            line.strip()
            for line in _end_of(path).splitlines()
            if line.strip() and not line.startswith(NOISE) and BLOCKING not in line
        ]
        if lines:
            return tuple(hide_rest(line[:TAIL_WIDTH]) for line in lines[-TAIL_LINES:])
    return ()


def _end_of(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except (OSError, ValueError):
        return ""


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # the system has no pidfds, or the process has ended
        return -1


def _exit_status(pidfd: int) -> int | None:
    answer = bytearray(_INFO.size)
    struct.pack_into("<Q", answer, 0, _HAS_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, answer)
    except OSError:
        return None
    found = _INFO.unpack(answer)
    return int(found[-1]) if found[0] & _HAS_EXIT else _UNCOLLECTED


def _told_status(watch: _Watch) -> int | None:
    """The wait status that the process left behind: the exit code in its call log, or a signal that Ray logged."""
    code = watch.reader.exit_code() if watch.reader is not None else None
    return code << 8 if code is not None else _logged_signal(watch.worker.logs)


def loss_at_start(worker: WatchedWorker, code: int | None) -> Loss:
    """The loss of a process that ended before it was watched, by its log and the exit code that Ray knows."""
    status = _logged_signal(worker.logs) if code is None else code << 8
    return Loss(kind="ended", worker=worker, status=status, seen=time.time(), tail=tail_of(worker.logs))


def _logged_signal(logs: Iterable[str]) -> int | None:
    for path in logs:
        found = _SIGNALLED.findall(_end_of(path))
        if found and found[-1] in signal.Signals.__members__:
            return int(signal.Signals[found[-1]])
    return None


def _oom_kills() -> int:
    """How many processes the kernel has killed for lack of memory since the boot."""
    for line in keeper.contents("/proc/vmstat").splitlines():
        if line.startswith(b"oom_kill "):
            return int(line.split()[1])
    return 0
