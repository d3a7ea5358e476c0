"""What an agent finds out about its workers: how they ended, also where the system tells that to the parent alone, as
Linux before 6.15 does, and whether they hang."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roost.engine.job import node_agent, worker_watch
from roost.engine.job.node_agent import NodeAgent
from roost.engine.job.worker_watch import Loss, WatchedWorker, WorkerWatch
from roost.engine.processes import keeper
from roost.engine.processes.process_facts import Process
from roost.engine.workers.call_log import CallLog, CallReader


def lost(child: Callable[[CallLog], None], log_file: Path, ready: Callable[[], bool] = lambda: True) -> Loss:
    """What is found out about a process that does this once the watch is `ready`."""
    log = CallLog(["step"], slots=4)
    go, release = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(release)  # so that the read ends if this test does
        if os.read(go, 1):
            child(log)
        os._exit(99)
    found = keeper.status_of(pid)
    assert found is not None
    worker = WatchedWorker(
        process=Process(pid=pid, started=found.start),
        group="group",
        rank=0,
        generation=0,
        node=0,
        ping=60.0,
        logs=(str(log_file),),
    )

    async def watch() -> Loss:
        told: asyncio.Future[Loss] = asyncio.get_running_loop().create_future()
        watching = WorkerWatch(told.set_result)
        watching.add(worker, CallReader(os.getpid(), log.fd))
        while not ready():
            await asyncio.sleep(0.01)
        os.write(release, b"x")
        return await asyncio.wait_for(told, 60)

    try:
        return asyncio.run(watch())
    finally:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        for descriptor in (go, release, log.fd):
            os.close(descriptor)


def exits(log: CallLog) -> None:
    log.note_exit(7)
    os._exit(7)


def dies(log: CallLog) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("child", "logged", "how"),
    [
        pytest.param(exits, "", "ended with exit code 7", id="exit"),
        pytest.param(
            dies, "*** SIGSEGV received at time=17 on cpu 0 ***\n", "was killed by SIGSEGV", id="crash"
        ),
        pytest.param(dies, "step 3\n", "ended without a word, as SIGKILL does it", id="kill"),
    ],
)
def test_what_the_process_left_tells_how_it_ended(
    child: Callable[[CallLog], None], logged: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_watch, "_exit_status", lambda _: None)
    (tmp_path / "err").write_text(logged)
    assert lost(child, tmp_path / "err").how.startswith(how)


@pytest.mark.parametrize(
    ("child", "how"), [(exits, "ended with exit code 7"), (lambda _: os._exit(0), "ended with exit code 0")]
)
def test_the_code_that_the_process_left_counts_where_ray_ended_it_with_0(
    child: Callable[[CallLog], None], how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_watch, "_exit_status", lambda _: 0)
    assert lost(child, tmp_path / "err").how == how


def test_a_process_that_hung_and_goes_on_is_told() -> None:
    """And that it hangs again."""
    told: list[Loss] = []
    reader: Any = SimpleNamespace(beats=lambda: (len(told) + 1) // 2)  # it beats once after each hang
    found = keeper.status_of(os.getpid())
    assert found is not None
    process = Process(pid=os.getpid(), started=found.start)
    worker = WatchedWorker(process=process, group="group", rank=0, generation=0, node=0, ping=0.01)

    async def watch() -> list[Loss | None]:
        latest: list[Loss | None] = []
        done = asyncio.Event()

        def tell(loss: Loss) -> None:
            told.append(loss)
            latest.append(watching.loss_of(process))
            if len(told) == 3:
                done.set()

        watching = WorkerWatch(tell)
        watching.add(worker, reader)
        await asyncio.wait_for(done.wait(), 60)
        watching.forget([process])
        return latest

    latest = asyncio.run(watch())
    assert [loss.kind for loss in told] == ["hung", "resumed", "hung"]
    assert latest == [told[0], None, told[2]]
    assert (
        worker_watch.loss_event(told[1], "hang", "resumed").detail == f"pid {os.getpid()} hung, and goes on"
    )


def test_a_process_that_its_parent_collects_late_tells_its_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel shows the end before, and tells how it was only then."""
    told: list[int | None] = []
    ask = worker_watch._exit_status

    def collected_after_the_first_look(pidfd: int) -> int | None:
        status = ask(pidfd)
        if not told:
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
            told.append(ask(pidfd))
        return status

    monkeypatch.setattr(worker_watch, "_exit_status", collected_after_the_first_look)
    found = lost(dies, tmp_path / "err")
    if told == [None]:
        pytest.skip("this kernel tells the parent alone")
    assert found.how == "was killed by SIGKILL"


@pytest.mark.parametrize(("within", "out_of_memory"), [(0.0, False), (60.0, True)])
def test_a_kill_for_want_of_memory_counts_for_a_moment(
    within: float, out_of_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that the watch saw some time ago was of another process."""
    looks = []

    def kills() -> int:
        looks.append(1)
        return int(len(looks) > 3)  # none before the watch began

    monkeypatch.setattr(worker_watch, "_oom_kills", kills)
    monkeypatch.setattr(worker_watch, "OOM_WITHIN", within)
    monkeypatch.setattr(worker_watch, "LOOK_EVERY", 0.01)
    found = lost(dies, tmp_path / "err", lambda: len(looks) > 5)
    assert found.out_of_memory == out_of_memory


def test_workers_and_agent_end_with_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray does not see to it if the parent of a raylet leaves it uncollected."""
    pids = []
    for _ in range(2):
        pids.append(os.fork())
        if pids[-1] == 0:
            signal.pause()
            os._exit(0)
    raylet, worker = pids
    found = keeper.status_of(worker)
    assert found is not None
    process = Process(pid=worker, started=found.start)
    watched = WatchedWorker(process=process, group="group", rank=0, generation=0, node=0)
    monkeypatch.setattr(os, "getppid", lambda: raylet)
    monkeypatch.setattr(node_agent, "TAKEN_WITHIN", 0.0)

    async def watch() -> list[Loss]:
        ended = asyncio.Event()
        monkeypatch.setattr(os, "_exit", lambda _: ended.set())
        agent = NodeAgent()
        await agent.follow([(watched, -1)])
        os.kill(raylet, signal.SIGKILL)
        losses = await asyncio.wait_for(agent.next_losses(0), 60)
        await asyncio.wait_for(ended.wait(), 60)
        return losses

    try:
        assert [loss.kind for loss in asyncio.run(watch())] == ["node"]
        assert os.WTERMSIG(os.waitpid(worker, 0)[1]) == signal.SIGKILL
    finally:
        monkeypatch.undo()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def test_what_ray_writes_is_not_the_last_words(tmp_path: Path) -> None:
    errors, output = tmp_path / "worker.err", tmp_path / "worker.out"
    errors.write_text(
        ":job_id:01000000\n:actor_name:Trainer\n"
        "2026-01-02 03:04:05,678\tWARNING worker.py:2967 -- Using blocking ray.get inside async actor. This blocks\n"
    )
    output.write_text("step 7\n")
    assert worker_watch.tail_of([str(errors), str(output)]) == ("step 7",)
