"""The `ray start` line of each host, for hosts without a scheduler."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from roost.bringup.job_start import JobStart, node_variables, options_text, ray_resources

TOKEN = "RAY_AUTH_MODE=token"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLine:
    rank: int
    host: str
    command: str


def host_lines(start: JobStart, head: str, port: int) -> tuple[HostLine, ...]:
    """The command of each node, the head's first."""
    return tuple(
        HostLine(
            rank=node.rank, host=node.hostname or node.ip, command=_command(start, node.rank, head, port)
        )
        for node in start.nodes
    )


def endpoint(head: str, port: int) -> str:
    return f"[{head}]:{port}" if ":" in head else f"{head}:{port}"


def _command(start: JobStart, rank: int, head: str, port: int) -> str:
    shape = start.shape_of(start.nodes[rank])
    variables = {"ROOST_NODE_RANK": str(rank), **node_variables(shape, start.declare)}
    set_here = "".join(f"{name}={shlex.quote(value)} " for name, value in variables.items())
    where = (
        f"--head --node-ip-address={shlex.quote(head)} --port={port}"
        if rank == 0
        else f"--address={shlex.quote(endpoint(head, port))}"
    )
    return f"{set_here}{TOKEN} ray start {where}{options_text(ray_resources(shape, start.declare))}"


def run_line(start: JobStart, head: str, port: int) -> str:
    """The last command, on node 0."""
    set_here = f"RAY_ADDRESS={shlex.quote(endpoint(head, port))} {TOKEN}"
    if start.waits:
        return f"{set_here} {start.command}"
    return f"export {set_here}; {start.waiting_command}"


def hosts_text(start: JobStart, head: str, port: int) -> str:
    lines = [
        "# 1. Once: make a token, and put the same file on every host, readable by you alone.",
        "ray get-auth-token --generate > /dev/null  # in ~/.ray/auth_token; RAY_AUTH_TOKEN_PATH names another place",
        "",
        "# 2. Start Ray, the head first.",
    ]
    for line in host_lines(start, head, port):
        where = f", on {' '.join(line.host.split())}" if line.host else ""  # stays in its comment
        lines += [f"# node {line.rank}{where}", *start.setup, line.command]
    lines += [
        "",
        f"# 3. On node 0: run the job. It waits up to {start.seconds} s for the nodes.",
        *start.setup,
        run_line(start, head, port),
        "",
        "# 4. At the end, on every host. It ends every Ray of yours there.",
        "ray stop",
    ]
    return "\n".join(lines) + "\n"
