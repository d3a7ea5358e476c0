"""Forks the worker processes of one node of an embedded Ray: `worker_forker.py DESCRIPTOR RAYLET PATH`.

Importing Ray takes most of the time that a worker process needs to start. The forker imports Ray once, with the
modules that roost's own processes need, and then makes a copy of itself for each worker. The copy gets the
arguments, environment, folder and output of the process that Ray started (`worker_start.py`), and goes on as Ray's
own worker script does.

The forker has one thread, since a copy has only the thread that made it. It ends with its raylet.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)  # the folder of this script, where no other script would look for modules

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
from pathlib import Path
from typing import NamedTuple

from ray._private.workers import default_worker

import roost.engine.job.managers
import roost.engine.job.node_agent
import roost.engine.ray_backend.worker_host  # noqa: F401
from roost.engine.ray_backend.worker_start import FORKED

ORDER_WITHIN = 5.0  # seconds
# Ray imports these in every worker, with the first value that it pickles, as far as they are installed.
IMPORTED_LATE = (
    *("ray._common.pydantic_compat", "ray._common.usage.usage_lib", "ray._private.arrow_serialization"),
    *("pydantic.fields", "pydantic.v1.fields", "starlette.datastructures"),
)


class WorkerOrder(NamedTuple):
    """What a copy takes over from the process that Ray started."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    memory_score: str  # that the system chooses by when memory runs out
    output: list[int]  # descriptors for input, output and errors


def copy_for_each_order(server: socket.socket, raylet: int) -> None:
    """Make a copy of this process for each order. Returns in the copies; ends the forker when its raylet has ended."""
    while True:
        ready, _, _ = select.select([server.fileno(), raylet], [], [])
        if raylet in ready:
            os._exit(0)
        with contextlib.suppress(
            OSError, ValueError
        ):  # the asking process has ended, or there is no room for a copy
            connection, _ = server.accept()
            with connection:
                if is_copy_for(connection):
                    server.close()
                    os.close(raylet)
                    return


def is_copy_for(connection: socket.socket) -> bool:
    """Make a copy for the process that asks. It answers that process once it has taken over from it."""
    order = received(connection)
    try:
        if not is_waiting(connection) or os.fork():
            return False
        try:
            take_over(order)
            connection.sendall(FORKED)
        except BaseException:  # the asking process starts a worker in the ordinary way, or was killed
            os._exit(1)
        return True
    finally:
        close_all(order.output)


def received(connection: socket.socket) -> WorkerOrder:
    connection.settimeout(ORDER_WITHIN)
    length, output, _, _ = socket.recv_fds(connection, 4, 3)
    try:
        with connection.makefile("rb") as stream:
            text = stream.read(int.from_bytes(length, "big"))
        arguments, environment, folder, memory_score = json.loads(text)
    except (OSError, ValueError):
        close_all(output)
        raise
    return WorkerOrder(arguments, environment, folder, memory_score, output)


def close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def is_waiting(connection: socket.socket) -> bool:
    """Whether the asking process still waits, and has not been killed or started a worker in the ordinary way."""
    ended = select.poll()
    ended.register(connection, select.POLLRDHUP)
    return not ended.poll(0)


def take_over(order: WorkerOrder) -> None:
    os.setpgid(0, 0)  # Ray kills the process group of a worker that has ended
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, descriptor in enumerate(order.output):
        os.dup2(descriptor, number)
    job = os.environ["RAY_JOB_ID"]  # Ray has read it already
    os.environ.clear()
    os.environ.update({**order.environment, "RAY_JOB_ID": job})
    os.chdir(order.folder)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(order.memory_score)
    sys.argv = [default_worker.__file__, *order.arguments]
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, str(Path(default_worker.__file__).parent))


def main() -> None:
    for name in IMPORTED_LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system collects copies that have ended
    gc.freeze()  # so that a collection in a copy does not write to all pages that the copies share
    copy_for_each_order(socket.socket(fileno=int(sys.argv[1])), os.pidfd_open(int(sys.argv[2])))
    runpy.run_path(default_worker.__file__, run_name="__main__")


if __name__ == "__main__":
    main()
