"""The Python stacks of a process. A thread of the process writes them when another process of the node asks.

A process that offers its stacks has a memory file, which other processes of its user find by name among its open
files. The memory names a pipe. A byte in the pipe wakes the thread, which writes the stacks of all threads into the
memory. This sends no signal and interrupts no code of the process. The thread needs the interpreter: a process that
is stopped, or in which one thread holds the interpreter, does not answer.
"""

# ruff: noqa: PTH115, PTH123, PTH208

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import struct
import sys
import threading
import time
from typing import Any

NAME = "roost-stacks"
_SIZE = 256 * 1024
_HEADER = struct.Struct("<iQQ")  # the pipe's descriptor, the number of answers, the length of the last
_MOST_FRAMES = 60  # of each thread, innermost first


class StackDesk:
    """The part in the process whose stacks are read."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        if not hasattr(os, "memfd_create"):
            return
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._questions = select.poll()
        self._questions.register(self._reading, select.POLLIN)
        self._file = os.memfd_create(NAME)
        os.ftruncate(self._file, _SIZE)
        self._memory = mmap.mmap(self._file, _SIZE)
        _HEADER.pack_into(self._memory, 0, self._writing, 0, 0)

    def wait(self, seconds: float) -> None:
        """Answer questions for so many seconds, then return."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._memory is None:
                time.sleep(left)
            elif self._questions.poll(left * 1000):
                with contextlib.suppress(OSError):
                    os.read(self._reading, 4096)
                self._answer(self._memory)

    def _answer(self, memory: mmap.mmap) -> None:
        stacks = own_stacks()
        while len(text := json.dumps(stacks).encode()) > _SIZE - _HEADER.size:
            stacks.pop()
        _, count, _ = _HEADER.unpack_from(memory, 0)
        memory[_HEADER.size : _HEADER.size + len(text)] = text
        _HEADER.pack_into(memory, 0, self._writing, count + 1, len(text))


def own_stacks() -> list[dict[str, Any]]:
    """The stacks of this process's threads, except the calling one."""
    names = {thread.ident: thread for thread in threading.enumerate()}
    found = []
    for ident, frame in sys._current_frames().items():
        if ident == threading.get_ident():
            continue
        frames: list[dict[str, Any]] = []
        here = frame
        while here is not None and len(frames) < _MOST_FRAMES:
            code = here.f_code
            name = getattr(code, "co_qualname", code.co_name)
            frames.append({"function": name, "file": code.co_filename, "line": here.f_lineno})
            here = here.f_back  # type: ignore[assignment]
        thread = names.get(ident)
        found.append({"name": thread.name if thread else f"thread {ident}", "frames": frames})
    return found


def asked_stacks(pid: int, within: float) -> list[dict[str, Any]]:
    """Ask a process of this node for its stacks. Raises `TimeoutError`, or `OSError` if it does not offer them."""
    with open(_memory_of(pid), "rb") as file:
        memory = mmap.mmap(file.fileno(), _SIZE, access=mmap.ACCESS_READ)
    pipe, before, _ = _HEADER.unpack_from(memory, 0)
    asking = os.open(f"/proc/{pid}/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(asking, b"?")
    finally:
        os.close(asking)
    deadline = time.monotonic() + within
    while (header := _HEADER.unpack_from(memory, 0))[1] == before:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"it did not answer in {within:g} s: it is stopped, or a thread holds the interpreter"
            )
        time.sleep(0.02)
    told: list[dict[str, Any]] = json.loads(bytes(memory[_HEADER.size : _HEADER.size + header[2]]))
    return told


def _memory_of(pid: int) -> str:
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder):
        with contextlib.suppress(OSError):
            if os.readlink(f"{folder}/{number}").startswith(f"/memfd:{NAME}"):
                return f"{folder}/{number}"
    raise FileNotFoundError("it is no process that offers its stacks")
