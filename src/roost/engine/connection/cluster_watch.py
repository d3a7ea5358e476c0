"""Notices that the cluster itself is gone. The job's managers import this, so it imports little.

When the head is lost, Ray answers nothing and ends the program after a minute. When the program's own Ray node is
lost, Ray ends the program once the head has noticed. A thread of roost connects to the head's port and checks that
node's process. Once the cluster is gone, every wait of roost raises the same error. If the program does not call
roost, the thread raises the error in the program's own code.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import ray
from ray._private import worker as ray_worker

from roost.engine.connection.listening import listens
from roost.engine.connection.signals import (
    in_main_thread,
    leave_main_alone,
    may_raise_in_main,
    own_exceptions,
    raise_in_main,
)
from roost.engine.processes import keeper
from roost.engine.processes.process_facts import Process
from roost.errors import ClusterGone, NoAnswer, RoostError, render

log = logging.getLogger("roost")
KNOCK_EVERY = 0.5  # seconds
PATIENCE = 2.0  # seconds of silence; a head that Ray restarts needs more: ROOST_HEAD_PATIENCE
STEP = 0.5  # seconds between two checks during a wait
HEAD_WITHIN = 60.0  # seconds; a head that is stopped accepts connections and never answers
ENDS_WITHIN = 5.0  # seconds that an interrupted question to the head is waited for
MOST_QUESTIONS = 16  # to the head at once; each is a thread, also when the program no longer waits for it
OWN_CODE_FOR = 3.0  # seconds that the program has to call roost before its own code is interrupted

Answer = TypeVar("Answer")

_gone: ClusterGone | None = None
_ended: dict[str, RoostError] = {}  # jobs of this process that were taken down
_spared: dict[str, threading.Event] = {}  # set: do not interrupt the main thread for this job's end
_questions = threading.BoundedSemaphore(MOST_QUESTIONS)
_watched = ""
_own_node: Process | None = None  # the process of the Ray node that this program is connected through
_close = threading.Event()
_end_expected = threading.Event()  # this program ends the cluster itself
_main_knows = threading.Event()  # the main thread has had the error, or cannot be interrupted


def watch_cluster(address: str) -> None:
    """Start to watch the head, once for each address."""
    global _watched, _gone, _close
    if address == _watched:
        return
    _close.set()
    _watched, _gone, _close = address, None, threading.Event()
    if may_raise_in_main():
        _main_knows.clear()
    else:
        _main_knows.set()
    threading.Thread(target=_watch, args=(address, _close), name="roost-cluster", daemon=True).start()


def forget_cluster() -> None:
    global _watched, _gone, _own_node
    _close.set()
    _watched, _gone, _own_node = "", None, None
    _end_expected.clear()
    leave_main_alone()


def expect_end() -> None:
    """Do not log the end of the cluster as an error. Waits still raise it."""
    _end_expected.set()


def check_cluster(job: str = "") -> None:
    """Raise if the cluster is gone, or if the job was taken down."""
    if _gone is not None:
        if in_main_thread():
            _main_knows.set()
        raise ClusterGone(*_gone.findings)
    if job in _ended:
        if in_main_thread():
            spare_main(job)
        raise _copy(_ended[job])


def end_job(job: str, why: RoostError, interrupt: bool) -> None:
    """Make every call and wait of the job raise this error; with `interrupt`, the program's own code too."""
    if job in _ended:
        return
    _ended[job] = why
    if interrupt:
        threading.Thread(target=_interrupt_main, args=(job, why), name="roost-order", daemon=True).start()


def _interrupt_main(job: str, why: RoostError) -> None:
    if not _spared.setdefault(job, threading.Event()).wait(OWN_CODE_FOR) and job in _ended:
        raise_in_main(_copy(why))


def _copy(error: RoostError) -> RoostError:
    """Another error of the same kind: each thread that raises one adds its own traceback."""
    kind: type[RoostError] = type(error)
    return kind(*error.findings)


def spare_main(job: str) -> None:
    """Do not interrupt the main thread for the end of this job: it has had the error, or ends the job itself."""
    _spared.setdefault(job, threading.Event()).set()


def job_is_ended(job: str) -> bool:
    return job in _ended


def forget_job(job: str) -> None:
    _ended.pop(job, None)
    _spared.pop(job, None)


def check_own_jobs() -> None:
    """Raise if exactly one job of this process was taken down. For answers whose job is unknown."""
    if len(_ended) == 1:
        check_cluster(next(iter(_ended)))


def cluster_is_gone() -> bool:
    return _gone is not None


def check_head() -> None:
    """Raise if the cluster is gone. Checks now; if the head is silent, waits until it counts as lost."""
    check_cluster()
    if _watched and (_own_node_ended() or not _answers(_watched)):
        deadline = time.monotonic() + _patience() + 2 * KNOCK_EVERY
        while _gone is None and time.monotonic() < deadline:
            _close.wait(0.05)
        check_cluster()


def ask_head(question: Callable[[], Answer], within: float = HEAD_WITHIN) -> Answer:
    """Ask the head in a thread and return its answer. Raises `NoAnswer` after `within` seconds.

    Ray itself waits a minute for a lost head, and longer for a stopped one.
    """
    answers: queue.SimpleQueue[tuple[Answer | None, BaseException | None]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put((question(), None))
        except BaseException as error:
            answers.put((None, error))
        finally:
            _questions.release()

    check_cluster()
    if not _questions.acquire(timeout=within):
        check_cluster()
        raise _silent_head(within)
    asking = threading.Thread(target=ask, name="roost-question", daemon=True)
    asking.start()
    try:
        answer, error = _answer_of_head(answers, within)
    except RoostError:
        raise
    except (
        BaseException
    ):  # as of a signal. The program will disconnect, and Ray ends a process that still asks then
        asking.join(ENDS_WITHIN)
        raise
    if isinstance(error, ray.exceptions.GetTimeoutError):
        raise _silent_head(within) from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]


def _answer_of_head(answers: queue.SimpleQueue[Answer], within: float) -> Answer:
    deadline = time.monotonic() + within
    while True:
        try:
            return answers.get(timeout=min(STEP, max(0.0, deadline - time.monotonic())))
        except queue.Empty:
            check_cluster()
            if time.monotonic() >= deadline:
                raise _silent_head(within) from None


def _silent_head(within: float) -> NoAnswer:
    _end_without_asking()
    return NoAnswer(
        code="RE112",
        what=f"the head of Ray{f' at {_watched}' if _watched else ''} has not answered in {within:g} s",
        remedy="is its machine overloaded, or its process stopped? `ray status` asks it too",
    )


def patient_get(refs: Any, timeout: float | None, job: str = "") -> Any:
    """`ray.get` that also raises if the cluster is gone or the job was taken down."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = STEP if deadline is None else min(STEP, max(0.0, deadline - time.monotonic()))
        try:
            with own_exceptions():
                return ray.get(refs, timeout=left)
        except ray.exceptions.GetTimeoutError:
            if deadline is not None and time.monotonic() >= deadline and not (_gone or job in _ended):
                raise
        check_cluster(job)


def patient_wait(
    refs: Any, timeout: float | None, count: int = 1, job: str = ""
) -> tuple[list[Any], list[Any]]:
    """`ray.wait` for `count` references that also raises if the cluster is gone or the job was taken down."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = STEP if deadline is None else min(STEP, max(0.0, deadline - time.monotonic()))
        with own_exceptions():
            ready, waiting = ray.wait(refs, num_returns=count, timeout=left)
        if len(ready) == count or (deadline is not None and time.monotonic() >= deadline):
            return ready, waiting
        check_cluster(job)


def _patience() -> float:
    try:
        return max(0.0, float(os.environ["ROOST_HEAD_PATIENCE"]))
    except (KeyError, ValueError):
        return PATIENCE


def _answers(address: str) -> bool:
    return listens(address, max(1.0, _patience()))


def _own_node_ended() -> bool:
    return _own_node is not None and not _own_node.alive()


def _find_own_node() -> Process | None:
    """The process of this program's Ray node; None if it cannot be found."""
    with contextlib.suppress(AttributeError, OSError), socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(1.0)
        asked.connect(ray_worker.global_worker.node.raylet_socket_name)
        pid, _, _ = struct.unpack("3i", asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        status = keeper.status_of(pid)
        if status is not None:
            return Process(pid=pid, started=status.start)
    return None


def _watch(address: str, close: threading.Event) -> None:
    global _own_node
    silent_since: float | None = None
    _own_node = _find_own_node()
    while not close.wait(KNOCK_EVERY):
        now = time.monotonic()
        if _own_node_ended():
            why = "the Ray node on this machine, which connects this program to it, has ended"
        elif _answers(address):
            silent_since = None
            continue
        else:
            silent_since = now if silent_since is None else silent_since
            if now - silent_since < _patience():
                continue
            why = f"its head does not answer any more, for {now - silent_since:.1f} s"
        if not ray.is_initialized():  # the program has disconnected by itself
            return
        if not close.is_set():
            _cluster_lost(address, why, close)
        return


def _end_without_asking() -> None:
    """Let an error end the program at once: Ray's own hook first waits for the head."""
    if sys.excepthook is ray_worker.custom_excepthook:
        sys.excepthook = ray_worker.normal_excepthook


def _cluster_lost(address: str, why: str, close: threading.Event) -> None:
    global _gone
    gone = ClusterGone(
        code="RE128",
        what=f"the Ray cluster at {address} is gone",
        why=why,
        remedy="every process of the job ended with it; start Ray, then the job again",
    )
    _end_without_asking()  # first: the main thread raises the error as soon as `_gone` is set
    _gone = gone
    if not _end_expected.is_set():
        log.error("%s", render(gone.findings))
    if not _main_knows.wait(OWN_CODE_FOR) and not close.is_set():
        raise_in_main(ClusterGone(*gone.findings))
