"""The calls of one worker process, in memory that other processes of its node can read.

The worker notes the start and the end of every call. Whoever has the memory can read it while the worker is busy,
stopped or dead. The log is a ring: the oldest calls are overwritten.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SLOTS = 16_384  # calls that are kept
RUNNING, RETURNED, RAISED = 0, 1, 2
OUTCOMES = ("running", "returned", "raised")
_RECORD = struct.Struct("<QddHB5x24s8x")  # number from 1, start, end, method, outcome, task
_END = struct.Struct("<dHB")  # written over a record from its end on
_END_OFFSET = 16
_OUTCOME_OFFSET = 26
_NUMBER = struct.Struct("<Q")
_HEADER = struct.Struct("<8sII")
_MAGIC = b"roostlog"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    number: int
    method: str
    start: float  # seconds since the epoch, by the clock of the worker's node
    end: float | None  # None while it runs
    outcome: str  # "running", "returned" or "raised"
    task: bytes = b""  # what the backend calls it


class CallLog:
    """Written by one process. `fd` names its memory for the other processes of the node, where that is possible."""

    def __init__(self, methods: Sequence[str], slots: int = SLOTS, shared: bool = True) -> None:
        names = json.dumps(list(methods)).encode()
        self._numbers = {name: number for number, name in enumerate(methods)}
        self._first = _HEADER.size + len(names)
        self._slots = slots
        size = self._first + slots * _RECORD.size
        self.fd = os.memfd_create("roost-calls") if shared and hasattr(os, "memfd_create") else -1
        if self.fd >= 0:
            os.ftruncate(self.fd, size)  # pages take memory when they are first written
        self._memory = mmap.mmap(self.fd, size)
        _HEADER.pack_into(self._memory, 0, _MAGIC, len(names), slots)
        self._memory[_HEADER.size : self._first] = names
        self._count = 0

    def begin(self, method: str, task: bytes = b"") -> int:
        """Note that a call starts. Returns its number, for `end`."""
        for _ in range(self._slots):  # a call that still runs keeps its place
            self._count += 1
            place = self._place(self._count)
            if not self._running(place):
                break
        _RECORD.pack_into(
            self._memory, place, self._count, time.time(), 0.0, self._numbers[method], RUNNING, task
        )
        return self._count

    def end(self, number: int, method: str, outcome: int) -> None:
        place = self._place(number)
        if _NUMBER.unpack_from(self._memory, place)[0] == number:  # else the ring has come around
            _END.pack_into(self._memory, place + _END_OFFSET, time.time(), self._numbers[method], outcome)

    def _place(self, number: int) -> int:
        return self._first + (number - 1) % self._slots * _RECORD.size

    def _running(self, place: int) -> bool:
        written = _NUMBER.unpack_from(self._memory, place)[0]
        return bool(written) and self._memory[place + _OUTCOME_OFFSET] == RUNNING

    def calls(self) -> list[Call]:
        return _calls(self._memory)

    def seconds_of(self, task: bytes) -> float | None:
        """How long a call took; None when it is not there, or not over."""
        for call in reversed(self.calls()):
            if call.task == task and call.end is not None:
                return call.end - call.start
        return None


class CallReader:
    """Reads the log of another process of this node, also after that process ended."""

    def __init__(self, pid: int, fd: int) -> None:
        with open(f"/proc/{pid}/fd/{fd}", "rb") as file:  # noqa: PTH123  no path that could be resolved
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if bytes(self._memory[: len(_MAGIC)]) != _MAGIC:  # the number stands for another file by now
            raise OSError(f"descriptor {fd} of process {pid} is not a log of calls")

    def calls(self) -> list[Call]:
        return _calls(self._memory)


def _calls(memory: Any) -> list[Call]:
    """In the order in which they started."""
    _, length, _ = _HEADER.unpack_from(memory, 0)
    first = _HEADER.size + length
    names: list[str] = json.loads(bytes(memory[_HEADER.size : first]))
    found = []
    for number, start, end, method, outcome, task in _RECORD.iter_unpack(bytes(memory[first:])):
        if not number:  # never written, or just being written
            continue
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
