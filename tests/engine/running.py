"""Runs programs as drivers, and waits for conditions."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
_numbers = itertools.count()


def eventually(check: Callable[[], Any], within: float, what: str) -> Any:
    """The first true answer; fails when there is none in time."""
    deadline = time.monotonic() + within
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within:g} s: {what}")
        time.sleep(0.05)


def eventually_unless_stuck(
    check: Callable[[], Any], progress: Callable[[], Any], within: float, what: str
) -> None:
    """Wait for work that may take long; fails when `progress` has not changed for `within` seconds."""
    deadline, last = time.monotonic() + within, progress()
    while not check():
        if (now := progress()) != last:
            deadline, last = time.monotonic() + within, now
        elif time.monotonic() > deadline:
            pytest.fail(f"nothing moved for {within:g} s ({last}): {what}")
        time.sleep(0.2)


def module_path() -> str:
    """PYTHONPATH with the tests' own modules."""
    return os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])


def new_job(hint: str = "job") -> str:
    return f"{hint}-{os.getpid()}-{next(_numbers)}"


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def roost_command(*words: str) -> list[str]:
    """What runs a verb in a process of its own."""
    return [sys.executable, "-c", "from roost.cli import main; main()", *words]


class Program:
    """A driver in a process of its own. It prints one JSON value a line; other lines are only kept."""

    def __init__(
        self, name: str, *args: str, env: dict[str, str | None] | None = None, prefix: Any = ()
    ) -> None:
        environ = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": module_path()}
        for key, value in (env or {}).items():
            if value is None:
                environ.pop(key, None)
            else:
                environ[key] = value
        self.name, self.lines, self._answers = name, list[str](), queue.Queue[Any]()
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(PROGRAMS / f"{name}.py"), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environ,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("@"):
                self._answers.put(json.loads(line[1:]))
        self._answers.put(EOFError)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def answer(self, within: float = 150) -> Any:
        """The next value it says."""
        try:
            said = self._answers.get(timeout=within)
        except queue.Empty:
            pytest.fail(f"{self.name} said nothing for {within:g} s:\n{self.output}")
        if said is EOFError:
            pytest.fail(f"{self.name} ended with {self.process.wait(10)}:\n{self.output}")
        return said

    def tell(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, within: float = 60) -> int:
        """Its exit code."""
        assert self.process.stdin
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"{self.name} did not end in {within:g} s:\n{self.output}")
        self._reader.join(10)
        return code

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()
