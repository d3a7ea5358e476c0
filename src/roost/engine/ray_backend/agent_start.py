"""Stands in for the two agents that Ray starts on each node: `agent_start.py SCRIPT ARGUMENTS`, SCRIPT being Ray's own.

Each agent of Ray imports Ray, which takes a second of processor time on a small machine, and a node that is not told
their ports in half a minute gives up. An embedded Ray has no dashboard, so its dashboard agents have nothing to do:
this script says so, and waits for the end of the node. Few jobs have workers with a `runtime_env`: the agent that
prepares those is started when the node asks for it.

It uses little of the standard library and nothing else.
"""

# pathlib alone would take longer to import than everything here.
# ruff: noqa: PTH105, PTH118, PTH120, PTH123

from __future__ import annotations

import importlib
import os
import runpy
import select
import socket
import sys
from typing import Any

NOT_IN_USE = -1  # as Ray's agents say it where the dashboard is not installed
DASHBOARD_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port")


def tell_port(given: dict[str, str], name: str, port: int) -> None:
    """Write the port where the node looks for it."""
    path = os.path.join(given["--session-dir"], f"{name}_{given['--node-id']}")
    with open(f"{path}.{os.getpid()}", "w") as file:
        file.write(str(port))
    os.replace(file.name, path)


def wait_for(readable: list[int], node: int) -> None:
    """Wait until one of these can be read. Ends this process when its node has ended."""
    ready, _, _ = select.select([*readable, node], [], [])
    if node in ready:
        sys.exit()


def serve_runtime_environments(script: str, arguments: list[str], server: socket.socket) -> None:
    """Go on as Ray's own agent, which answers at this socket in place of one that it makes."""
    folder = os.path.dirname(script)
    sys.path[:1] = [folder, os.path.join(folder, "thirdparty_files")]  # Ray brings aiohttp
    web: Any = importlib.import_module("aiohttp.web")
    run_app = web.run_app

    def run_at_server(app: object, *, loop: object, **_: object) -> None:
        run_app(app, sock=server, loop=loop)

    web.run_app = run_at_server
    sys.argv = [script, *arguments, "--runtime-env-agent-port=0"]
    runpy.run_path(script, run_name="__main__")


def main(script: str, arguments: list[str]) -> None:
    node = os.pidfd_open(os.getppid())
    given = dict(one.partition("=")[::2] for one in arguments)
    if "--runtime-env-agent-port" not in given:
        for name in DASHBOARD_PORTS:
            tell_port(given, name, NOT_IN_USE)
        wait_for([], node)
    with socket.create_server((given["--node-ip-address"], int(given["--runtime-env-agent-port"]))) as server:
        tell_port(given, "runtime_env_agent_port", server.getsockname()[1])
        wait_for([server.fileno()], node)
        serve_runtime_environments(script, arguments, server)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
