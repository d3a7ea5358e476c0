"""What an embedded Ray runs in place of Ray's agents."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from running import eventually

from roost.engine.ray_backend import agent_start

# Stands for Ray's agent: it answers at the socket that it is given.
AGENT = """
import sys
import aiohttp.web

aiohttp.web.run_app("the agent's program", sock="a socket of its own", loop="its loop")
print(sys.argv[1:], flush=True)
"""
AIOHTTP = """
from pathlib import Path

def run_app(program, *, sock, loop):
    connection, _ = sock.accept()
    connection.recv(4096)
    body = f"{program}, {loop}".encode()
    connection.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\n" + body)
    connection.close()
"""
# Stands for the node: it starts an agent, says its number, and ends when its input does.
NODE = """
import subprocess, sys
agent = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
print(agent.pid, flush=True)
sys.stdin.read()
"""


@contextmanager
def node_with(script: Path, *arguments: str) -> Iterator[tuple[psutil.Process, subprocess.Popen[str]]]:
    """The agent, and its node."""
    command = [sys.executable, agent_start.__file__, str(script), *arguments]
    with subprocess.Popen(
        [sys.executable, "-c", NODE, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as node:
        assert node.stdout
        agent = psutil.Process(int(node.stdout.readline()))
        try:
            yield agent, node
        finally:
            node.kill()


def is_there(path: Path) -> bool:
    return path.exists()


def test_a_dashboard_agent_says_that_its_ports_are_not_in_use_and_ends_with_its_node(tmp_path: Path) -> None:
    given = (f"--session-dir={tmp_path}", "--node-id=abc")
    with node_with(tmp_path / "agent.py", *given) as (agent, node):
        last = tmp_path / "dashboard_agent_listen_port_abc"
        eventually(lambda: is_there(last), 60, "the agent says its ports")
        told = {path.name: path.read_text() for path in tmp_path.iterdir()}
        node.kill()
        eventually(lambda: not agent.is_running(), 60, "the agent ends with its node")
    assert told == {
        "metrics_agent_port_abc": "-1",
        "metrics_export_port_abc": "-1",
        "dashboard_agent_listen_port_abc": "-1",
    }


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "never asked"])
def test_the_agent_of_runtime_environments_starts_when_it_is_asked(tmp_path: Path, asked: bool) -> None:
    script = tmp_path / "main.py"
    script.write_text(AGENT)
    (tmp_path / "thirdparty_files" / "aiohttp").mkdir(parents=True)
    (tmp_path / "thirdparty_files" / "aiohttp" / "__init__.py").touch()
    (tmp_path / "thirdparty_files" / "aiohttp" / "web.py").write_text(textwrap.dedent(AIOHTTP))
    given = (
        *(f"--session-dir={tmp_path}", "--node-id=abc"),
        *("--node-ip-address=127.0.0.2", "--runtime-env-agent-port=0"),
    )
    with node_with(script, *given) as (agent, node):
        file = tmp_path / "runtime_env_agent_port_abc"
        eventually(lambda: is_there(file), 60, "the agent says its port")
        if asked:
            with urllib.request.urlopen(f"http://127.0.0.2:{file.read_text()}/", timeout=60) as answer:
                assert answer.read() == b"the agent's program, its loop"
            assert node.stdout
            assert node.stdout.readline().strip() == str([*given, "--runtime-env-agent-port=0"])
        node.kill()
        eventually(lambda: not agent.is_running(), 60, "the agent ends")
