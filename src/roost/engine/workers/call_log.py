"""The calls of one worker process, in memory that other processes of its node can read.

The worker writes the start and the end of every call, and of every wait for a channel or a lock in it. A process that
has opened the memory can read it while the worker is busy, stopped or dead. The log is a ring: new calls overwrite
the oldest. Beside the ring are totals for each method, number of calls and seconds, which lose nothing.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

SLOTS = 16_384  # calls that are kept
RUNNING, RETURNED, RAISED = 1, 2, 3  # 0: the place was never used
OUTCOMES = ("", "running", "returned", "raised")
_RECORD = struct.Struct("<QddHB5x24s8x")  # number from 1, start, end, method, outcome, task
_BEGUN = struct.Struct("<8xd8xH")  # the start and the method of a record
_END_OFFSET, _OUTCOME_OFFSET = 16, 26  # in a record
_TIME = struct.Struct("<d")
# Magic, length of the method names, slots, heartbeats, exit code, number of the last call.
_HEADER = struct.Struct("<8sIIQqQ")
_BEATS, _EXIT, _COUNT = struct.Struct("<Q"), struct.Struct("<q"), struct.Struct("<Q")
_BEATS_OFFSET, _EXIT_OFFSET, _COUNT_OFFSET = 16, 24, 32
BOUNDS = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0)  # seconds: calls are counted by how long they took
_TOTAL = struct.Struct(f"<QQd{len(BOUNDS) + 1}Q")  # of one method: returned, raised, seconds, and the counts
_NO_EXIT = -1
_MAGIC = b"roostlog"
# In the place of a method's name; no method has spaces.
FOR_CHANNEL, FOR_LOCK = "waits for a channel", "waits for a lock"
WAITS = (FOR_CHANNEL, FOR_LOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    number: int
    method: str
    start: float  # seconds since the epoch, by the clock of the worker's node
    end: float | None  # None while it runs
    outcome: str  # "running", "returned" or "raised"
    task: bytes = b""  # the backend's id of the call

    @property
    def is_wait(self) -> bool:
        """Whether this is a wait inside a call."""
        return self.method in WAITS


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTotal:
    """The calls of one method that have ended, or the waits of one kind."""

    method: str
    returned: int
    raised: int
    seconds: float
    lasting: tuple[int, ...]  # calls by their duration: up to each of `BOUNDS`, and longer


class CallLog:
    """The log that one process writes. Other processes of the node open its memory by `fd`; -1 if they cannot."""

    def __init__(self, methods: Sequence[str], slots: int = SLOTS, shared: bool = True) -> None:
        names = json.dumps([*methods, *WAITS]).encode()
        self._numbers = {name: number for number, name in enumerate((*methods, *WAITS))}
        self._totals = _HEADER.size + len(names)
        self._first = self._totals + len(self._numbers) * _TOTAL.size
        self._slots = slots
        size = self._first + slots * _RECORD.size
        self.fd = os.memfd_create("roost-calls") if shared and hasattr(os, "memfd_create") else -1
        if self.fd >= 0:
            os.ftruncate(self.fd, size)  # a page takes memory only after its first write
        self._memory = mmap.mmap(self.fd, size)
        _HEADER.pack_into(self._memory, 0, _MAGIC, len(names), slots, 0, _NO_EXIT, 0)
        self._memory[_HEADER.size : self._totals] = names
        self._count = 0
        self._sums: list[list[Any]] = [[0, 0, 0.0, *[0] * (len(BOUNDS) + 1)] for _ in self._numbers]

    def begin(self, method: str, task: bytes = b"") -> int:
        """Record the start of a call. Returns its place, for `end`; 0 if running calls take all places."""
        memory = self._memory
        for _ in range(self._slots):
            place = self._first + self._count % self._slots * _RECORD.size
            self._count += 1
            if memory[place + _OUTCOME_OFFSET] != RUNNING:
                number = self._numbers[method]
                _RECORD.pack_into(memory, place, self._count, time.time(), 0.0, number, RUNNING, task)
                _COUNT.pack_into(memory, _COUNT_OFFSET, self._count)
                return place
        return 0

    def end(self, place: int, outcome: int) -> None:
        if place:
            now = time.time()
            _TIME.pack_into(self._memory, place + _END_OFFSET, now)
            self._memory[place + _OUTCOME_OFFSET] = outcome
            self._add_up(place, now, outcome)

    def _add_up(self, place: int, now: float, outcome: int) -> None:
        start, method = _BEGUN.unpack_from(self._memory, place)
        took, sums = max(0.0, now - start), self._sums[method]
        sums[outcome - RETURNED] += 1
        sums[2] += took
        sums[3 + bisect_left(BOUNDS, took)] += 1
        _TOTAL.pack_into(self._memory, self._totals + method * _TOTAL.size, *sums)

    def beat(self) -> None:
        """Write a heartbeat: this process runs Python."""
        (beats,) = _BEATS.unpack_from(self._memory, _BEATS_OFFSET)
        _BEATS.pack_into(self._memory, _BEATS_OFFSET, beats + 1)

    def note_exit(self, code: int) -> None:
        """Write the exit code: older systems tell it only to the parent process."""
        _EXIT.pack_into(self._memory, _EXIT_OFFSET, code & 0xFF)

    def pages(self) -> CallPages:
        return CallPages(self._memory)

    def seconds_of(self, task: bytes) -> float | None:
        """How long a call took; None if the log does not have it, or it still runs."""
        for call in reversed(self.pages().calls()):
            if call.task == task and call.end is not None:
                return call.end - call.start
        return None


_own: CallLog | None = None  # of the worker in this process


def keep_own(log: CallLog) -> None:
    """Record the waits of this process in this log."""
    global _own
    _own = log


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Record that the worker of this process waits for one of `WAITS`. Does nothing in a process without a worker."""
    log = _own
    place = log.begin(what) if log is not None else 0
    try:
        yield
    finally:
        if log is not None:
            log.end(place, RETURNED)


class CallPages:
    """The memory of a log, for reading."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        _, length, self.slots, *_ = _HEADER.unpack_from(memory, 0)
        self._totals = _HEADER.size + length
        self._names: list[str] = json.loads(bytes(memory[_HEADER.size : self._totals]))
        self._first = self._totals + len(self._names) * _TOTAL.size

    def count(self) -> int:
        """The number of the last call that began."""
        found: int = _COUNT.unpack_from(self._memory, _COUNT_OFFSET)[0]
        return found

    def calls(self) -> list[Call]:
        """The calls in the log, in the order in which they started."""
        records = _RECORD.iter_unpack(memoryview(self._memory)[self._first :])
        # A place without a number was never written, or is just being written; places are used in order.
        found = [self._call(*record) for record in takewhile(lambda record: record[0], records)]
        return sorted(found, key=lambda call: call.number)

    def call(self, number: int) -> Call | None:
        """The call with this number; None if another call has overwritten it."""
        place = self._first + (number - 1) % self.slots * _RECORD.size
        record = _RECORD.unpack_from(self._memory, place)
        return self._call(*record) if record[0] == number else None

    def totals(self) -> list[CallTotal]:
        """The totals of every method that was called."""
        found = []
        for number, name in enumerate(self._names):
            place = self._totals + number * _TOTAL.size
            returned, raised, seconds, *lasting = _TOTAL.unpack_from(self._memory, place)
            if returned or raised:
                total = CallTotal(
                    method=name, returned=returned, raised=raised, seconds=seconds, lasting=tuple(lasting)
                )
                found.append(total)
        return found

    def _call(self, number: int, start: float, end: float, method: int, outcome: int, task: bytes) -> Call:
        return Call(
            number=number,
            method=self._names[method],
            start=start,
            end=None if outcome == RUNNING else end,
            outcome=OUTCOMES[outcome],
            task=task,
        )


class CallReader(CallPages):
    """Reads the log of another process of this node, even after that process has ended."""

    def __init__(self, pid: int, fd: int) -> None:
        with open(f"/proc/{pid}/fd/{fd}", "rb") as file:  # noqa: PTH123  no path that could be resolved
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if bytes(memory[: len(_MAGIC)]) != _MAGIC:  # the descriptor is another file by now
            raise OSError(f"descriptor {fd} of process {pid} is not a log of calls")
        super().__init__(memory)

    def beats(self) -> int:
        found: int = _BEATS.unpack_from(self._memory, _BEATS_OFFSET)[0]
        return found

    def exit_code(self) -> int | None:
        """The exit code that the process wrote; None if it wrote none, as when it was killed."""
        found: int = _EXIT.unpack_from(self._memory, _EXIT_OFFSET)[0]
        return None if found == _NO_EXIT else found
