"""The calls of one worker process, in memory that other processes of its node can read.

The worker notes the start and the end of every call, and of every wait for a channel or a lock in it. Whoever has
the memory can read it while the worker is busy, stopped or dead. The log is a ring: the oldest calls are overwritten.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

SLOTS = 16_384  # calls that are kept
RUNNING, RETURNED, RAISED = 1, 2, 3  # 0: the place was never used
OUTCOMES = ("", "running", "returned", "raised")
_RECORD = struct.Struct("<QddHB5x24s8x")  # number from 1, start, end, method, outcome, task
_END_OFFSET, _OUTCOME_OFFSET = 16, 26  # in a record
_TIME = struct.Struct("<d")
_HEADER = struct.Struct("<8sIIQq")  # magic, length of the method names, slots, heartbeats, exit code
_BEATS, _EXIT = struct.Struct("<Q"), struct.Struct("<q")
_BEATS_OFFSET, _EXIT_OFFSET = 16, 24
_NO_EXIT = -1
_MAGIC = b"roostlog"
FOR_CHANNEL, FOR_LOCK = (
    "waits for a channel",
    "waits for a lock",
)  # in the place of a method; no method has spaces
WAITS = (FOR_CHANNEL, FOR_LOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    number: int
    method: str
    start: float  # seconds since the epoch, by the clock of the worker's node
    end: float | None  # None while it runs
    outcome: str  # "running", "returned" or "raised"
    task: bytes = b""  # what the backend calls it

    @property
    def is_wait(self) -> bool:
        """Whether it is a wait inside a call."""
        return self.method in WAITS


class CallLog:
    """Written by one process. `fd` names its memory for the other processes of the node, where that is possible."""

    def __init__(self, methods: Sequence[str], slots: int = SLOTS, shared: bool = True) -> None:
        names = json.dumps([*methods, *WAITS]).encode()
        self._numbers = {name: number for number, name in enumerate((*methods, *WAITS))}
        self._first = _HEADER.size + len(names)
        self._slots = slots
        size = self._first + slots * _RECORD.size
        self.fd = os.memfd_create("roost-calls") if shared and hasattr(os, "memfd_create") else -1
        if self.fd >= 0:
            os.ftruncate(self.fd, size)  # pages take memory when they are first written
        self._memory = mmap.mmap(self.fd, size)
        _HEADER.pack_into(self._memory, 0, _MAGIC, len(names), slots, 0, _NO_EXIT)
        self._memory[_HEADER.size : self._first] = names
        self._count = 0

    def begin(self, method: str, task: bytes = b"") -> int:
        """Note that a call starts. Returns its place, for `end`; 0 while calls that still run take all places."""
        memory = self._memory
        for _ in range(self._slots):
            place = self._first + self._count % self._slots * _RECORD.size
            self._count += 1
            if memory[place + _OUTCOME_OFFSET] != RUNNING:
                number = self._numbers[method]
                _RECORD.pack_into(memory, place, self._count, time.time(), 0.0, number, RUNNING, task)
                return place
        return 0

    def end(self, place: int, outcome: int) -> None:
        if place:
            _TIME.pack_into(self._memory, place + _END_OFFSET, time.time())
            self._memory[place + _OUTCOME_OFFSET] = outcome

    def beat(self) -> None:
        """Show that this process runs Python."""
        (beats,) = _BEATS.unpack_from(self._memory, _BEATS_OFFSET)
        _BEATS.pack_into(self._memory, _BEATS_OFFSET, beats + 1)

    def note_exit(self, code: int) -> None:
        """Leave word of the exit code: older systems do not tell it to others than the parent."""
        _EXIT.pack_into(self._memory, _EXIT_OFFSET, code & 0xFF)

    def calls(self) -> list[Call]:
        return _calls(self._memory)

    def seconds_of(self, task: bytes) -> float | None:
        """How long a call took; None when it is not there, or not over."""
        for call in reversed(self.calls()):
            if call.task == task and call.end is not None:
                return call.end - call.start
        return None


_own: CallLog | None = None  # of the worker in this process


def keep_own(log: CallLog) -> None:
    """From now on, waits of this process are noted there."""
    global _own
    _own = log


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Note that the worker of this process waits for one of `WAITS`. Without a worker nothing is noted."""
    log = _own
    place = log.begin(what) if log is not None else 0
    try:
        yield
    finally:
        if log is not None:
            log.end(place, RETURNED)


class CallReader:
    """Reads the log of another process of this node, also after that process ended."""

    def __init__(self, pid: int, fd: int) -> None:
        with open(f"/proc/{pid}/fd/{fd}", "rb") as file:  # noqa: PTH123  no path that could be resolved
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if bytes(self._memory[: len(_MAGIC)]) != _MAGIC:  # the number stands for another file by now
            raise OSError(f"descriptor {fd} of process {pid} is not a log of calls")

    def calls(self) -> list[Call]:
        return _calls(self._memory)

    def beats(self) -> int:
        found: int = _BEATS.unpack_from(self._memory, _BEATS_OFFSET)[0]
        return found

    def exit_code(self) -> int | None:
        """The exit code the process left word of; None if it was killed, or ended in a way of its own."""
        found: int = _EXIT.unpack_from(self._memory, _EXIT_OFFSET)[0]
        return None if found == _NO_EXIT else found


def _calls(memory: Any) -> list[Call]:
    """In the order in which they started."""
    _, length, *_ = _HEADER.unpack_from(memory, 0)
    first = _HEADER.size + length
    names: list[str] = json.loads(bytes(memory[_HEADER.size : first]))
    found = []
    for number, start, end, method, outcome, task in _RECORD.iter_unpack(memoryview(memory)[first:]):
        if not number:  # never written, or just being written; places are used in order
            break
        found.append(
            Call(
                number=number,
                method=names[method],
                start=start,
                end=None if outcome == RUNNING else end,
                outcome=OUTCOMES[outcome],
                task=task,
            )
        )
    return sorted(found, key=lambda call: call.number)
