"""The Python stacks of processes of this node, from py-spy if it is installed, else from the processes themselves."""

# ruff: noqa: PTH120

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from roost.engine.processes.inner_stacks import asked_stacks
from roost.engine.processes.process_facts import Process
from roost.errors import first_line

PY_SPY, INSIDE = "py-spy", "the process itself"
EACH_WITHIN = 5.0  # seconds
_TRIES = 3  # a running process may change its stack during the read
AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    name: str
    frames: tuple[Frame, ...]  # innermost first
    holds_interpreter: bool = False  # as far as py-spy tells


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStacks:
    """`state` is "running", "stopped" (by a signal) or "dead". Without threads, `problem` says why."""

    state: str
    threads: tuple[ThreadStack, ...] = ()
    how: str = ""
    problem: str = ""


def stacks_of(processes: Sequence[Process]) -> list[ProcessStacks]:
    """The stacks of each process. Reads several at once, each for at most `EACH_WITHIN` seconds a way."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(_stacks, processes))


def _stacks(process: Process) -> ProcessStacks:
    state = process.state()
    if state == "dead":
        return ProcessStacks(state=state, problem="it has ended")
    spy, problems = py_spy(), []
    if spy:
        try:
            return ProcessStacks(state=state, threads=_spied(spy, process.pid), how=PY_SPY)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            problems.append(f"py-spy: {first_line(error, 200)}")
    else:
        problems.append("py-spy is not installed on its node")
    try:
        told = asked_stacks(process.pid, EACH_WITHIN)
        return ProcessStacks(state=state, threads=_threads(told), how=INSIDE)
    except (OSError, ValueError) as error:
        problems.append(first_line(error, 200))
    return ProcessStacks(state=process.state(), problem="; ".join(problems))


def py_spy() -> str | None:
    """py-spy on the PATH, or beside this interpreter."""
    return shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))


def _spied(spy: str, pid: int) -> tuple[ThreadStack, ...]:
    # `--nonblocking` does not stop the process: stopping would disturb it, and fails if it is stopped already.
    words = [spy, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    deadline = time.monotonic() + EACH_WITHIN
    for _ in range(_TRIES):
        left = max(0.0, deadline - time.monotonic())
        done = subprocess.run(words, capture_output=True, text=True, timeout=left, check=False)
        if done.returncode == 0:
            told = [
                {
                    "name": thread["thread_name"]
                    or f"thread {thread['os_thread_id'] or thread['thread_id']}",
                    "owns_gil": thread["owns_gil"],
                    "frames": [
                        {"function": frame["name"], "file": frame["filename"], "line": frame["line"]}
                        for frame in thread["frames"]
                    ],
                }
                for thread in json.loads(done.stdout)
            ]
            return _threads(told)
    raise ValueError(next(iter(done.stderr.strip().splitlines()), f"ended with {done.returncode}")[:200])


def _threads(told: Sequence[dict[str, Any]]) -> tuple[ThreadStack, ...]:
    """The stacks of the threads, the main thread's first."""
    threads = [
        ThreadStack(
            name=one["name"],
            frames=tuple(Frame(**frame) for frame in one["frames"]),
            holds_interpreter=one.get("owns_gil", False),
        )
        for one in told
    ]
    return tuple(sorted(threads, key=lambda thread: thread.name != "MainThread"))
