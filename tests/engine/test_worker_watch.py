"""How a process ended, where the system tells it to the parent alone, as Linux before 6.15 does."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from roost.engine.job import worker_watch
from roost.engine.job.worker_watch import Loss, WatchedWorker, WorkerWatch
from roost.engine.processes import keeper
from roost.engine.processes.process_facts import Process
from roost.engine.workers.call_log import CallLog, CallReader


def lost(child: Callable[[CallLog], None], log_file: Path) -> Loss:
    """What is found out about a process that does this."""
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
        logs=(str(log_file),),
    )

    async def watch() -> Loss:
        told: asyncio.Future[Loss] = asyncio.get_running_loop().create_future()
        watching = WorkerWatch(told.set_result)
        watching.add(worker, CallReader(os.getpid(), log.fd))
        os.write(release, b"x")
        return await asyncio.wait_for(told, 60)

    try:
        return asyncio.run(watch())
    finally:
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
