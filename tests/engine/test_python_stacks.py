"""The stacks of busy, waiting, stopped and ended processes, by py-spy and by their own word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from running import eventually

from roost.engine.processes import python_stacks
from roost.engine.processes.inner_stacks import asked_stacks
from roost.engine.processes.process_facts import Process, process_of
from roost.engine.processes.python_stacks import INSIDE, PY_SPY, ProcessStacks, stacks_of
from roost.views.process_text import frame_text

PROGRAM = """
import re, sys, threading
from roost.engine.processes.inner_stacks import StackDesk

def offers_stacks(desk):
    while True:
        desk.wait(60)

def counts_on():
    print("ready", flush=True)
    number = 0
    while True:
        number += 1

def holds_the_interpreter():
    print("ready", flush=True)
    re.match(r"(a+)+$", "a" * 60 + "b")

threading.Thread(target=offers_stacks, args=(StackDesk(),), name="offers", daemon=True).start()
globals()[sys.argv[1]]()
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, Process]]:
    started = {
        name: subprocess.Popen([sys.executable, "-c", PROGRAM, name], stdout=subprocess.PIPE, text=True)
        for name in ("counts_on", "holds_the_interpreter")
    }
    for one in started.values():
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    yield {name: process_of(one.pid) for name, one in started.items()}
    for one in started.values():
        one.kill()
        one.wait()
        assert one.stdout is not None
        one.stdout.close()


def functions(found: ProcessStacks) -> list[str]:
    """Of the main thread, innermost first."""
    return [frame.function for frame in found.threads[0].frames] if found.threads else []


def test_py_spy_reads_busy_processes_and_those_that_hold_the_interpreter(
    processes: dict[str, Process],
) -> None:
    busy, holding = stacks_of(list(processes.values()))
    assert (busy.how, busy.state, busy.problem) == (PY_SPY, "running", "")
    assert functions(busy)[-2:] == ["counts_on", "<module>"]
    assert functions(holding)[-2:] == ["holds_the_interpreter", "<module>"]
    assert {thread.name for thread in busy.threads} == {"MainThread", "offers"}
    assert frame_text(busy.threads[0].frames[-1]).startswith("<module> (<string>:")


def test_a_stopped_process_is_read_and_stays_stopped(processes: dict[str, Process]) -> None:
    process = processes["counts_on"]
    os.kill(process.pid, signal.SIGSTOP)
    try:
        eventually(lambda: process.state() == "stopped", 30, "the process is stopped")
        (found,) = stacks_of([process])
        assert (found.state, found.how) == ("stopped", PY_SPY)
        assert "counts_on" in functions(found)
        assert process.state() == "stopped"
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_without_py_spy_the_process_itself_tells(
    processes: dict[str, Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_stacks, "py_spy", lambda: None)
    (busy,) = stacks_of([processes["counts_on"]])
    assert (busy.how, busy.problem) == (INSIDE, "")
    assert functions(busy) == ["counts_on", "<module>"]
    again = asked_stacks(processes["counts_on"].pid, 30)
    assert [thread["name"] for thread in again] == ["MainThread"], "but for the thread that answers"
    monkeypatch.setattr(python_stacks, "EACH_WITHIN", 0.3)
    (holding,) = stacks_of([processes["holds_the_interpreter"]])
    assert holding.threads == ()
    assert "py-spy is not installed" in holding.problem
    assert "a thread holds the interpreter" in holding.problem


def test_all_tries_of_py_spy_share_the_time_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the stacks waits no longer than that."""
    now = [0.0]

    def slow_failure(words: list[str], timeout: float, **_: object) -> subprocess.CompletedProcess[str]:
        now[0] += min(timeout, 4.0)
        if timeout < 4.0:
            raise subprocess.TimeoutExpired(words, timeout)
        return subprocess.CompletedProcess(words, 1, "", "busy")

    monkeypatch.setattr(python_stacks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(python_stacks, "py_spy", lambda: "py-spy")
    monkeypatch.setattr(subprocess, "run", slow_failure)
    monkeypatch.setattr(python_stacks, "asked_stacks", lambda *_: [])
    (found,) = stacks_of([process_of(os.getpid())])
    assert (found.how, now[0]) == (INSIDE, python_stacks.EACH_WITHIN)


def test_processes_that_cannot_be_read_say_why() -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        (foreign,) = stacks_of([process_of(other.pid)])
        other.kill()
    assert foreign.problem.startswith("py-spy: ")
    assert foreign.problem.endswith("it is no process that offers its stacks")
    (ended,) = stacks_of([Process(pid=other.pid, started=1)])
    assert (ended.state, ended.problem) == ("dead", "it has ended")
