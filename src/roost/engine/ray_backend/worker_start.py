"""The script that an embedded Ray runs for each worker process. It asks the node's forker for a copy of itself.

It uses little of the standard library and nothing else: every worker waits for it.
"""

# pathlib alone would take longer to import than everything here.
# ruff: noqa: PTH109, PTH118, PTH120, PTH123

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys

VARIABLE = "ROOST_FORKER"  # the path of the forker's socket
ANSWER_WITHIN = 120.0  # seconds; the first workers wait until the forker has imported Ray, and Ray for 300
FORKED = b"forked"


def default_worker() -> str:
    """The path of the script that Ray runs by itself."""
    found = importlib.util.find_spec("ray")
    assert found is not None
    assert found.origin is not None
    return os.path.join(os.path.dirname(found.origin), "_private", "workers", "default_worker.py")


def needs_own_process(arguments: list[str]) -> bool:
    """Whether the worker has a `runtime_env`: another interpreter or search path needs a new process."""
    return any(one.startswith("--runtime-env-hash=") and not one.endswith("=0") for one in arguments)


def is_forked(path: str, arguments: list[str]) -> bool:
    """Ask the forker for a process with this one's arguments, environment, folder, memory score and output."""
    try:
        with open("/proc/self/oom_score_adj") as score:  # Ray's, so that workers are killed before the raylet
            order = json.dumps([arguments, dict(os.environ), os.getcwd(), score.read()]).encode()
        with socket.socket(socket.AF_UNIX) as forker:
            forker.settimeout(ANSWER_WITHIN)
            forker.connect(path)
            socket.send_fds(forker, [len(order).to_bytes(4, "big")], [0, 1, 2])
            forker.sendall(order)
            return forker.recv(len(FORKED)) == FORKED
    except OSError:
        return False


def main(arguments: list[str]) -> None:
    path = os.environ.pop(VARIABLE, "")
    if path and not needs_own_process(arguments) and is_forked(path, arguments):
        return
    ordinary = [default_worker() if one == sys.argv[0] else one for one in sys.orig_argv]
    os.execv(sys.executable, ordinary)


if __name__ == "__main__":
    main(sys.argv[1:])
