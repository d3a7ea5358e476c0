"""One small actor per node and job: it says what the node is, and holds the job's ports there."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from roost.errors import ClusterError, Finding

SEARCH_PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")


class NodeAgent:
    def __init__(self) -> None:
        self._held: dict[int, socket.socket] = {}

    def facts(self, visible_variables: Iterable[str]) -> dict[str, Any]:
        """What only a process on the node can tell."""
        return {
            "hostname": socket.gethostname(),
            "declared_rank": os.environ.get("ROOST_NODE_RANK"),
            "accelerator_type": os.environ.get("ROOST_ACCELERATOR_TYPE") or _vendor(),
            "search_paths": {name: os.environ[name] for name in SEARCH_PATHS if name in os.environ},
            "visible": {
                name: value for name in visible_variables if (value := _raylet_variable(name)) is not None
            },
            "pid": os.getpid(),
        }

    def lease_ports(self, count: int = 1) -> list[int]:
        """Ports that are free now and stay ours until they are released or this process ends."""
        taken = [hold_port(self._held) for _ in range(count)]
        return [port for port, _ in taken]

    def release_ports(self, ports: Iterable[int]) -> None:
        for port in ports:
            held = self._held.pop(port, None)
            if held is not None:
                held.close()


def hold_port(held: dict[int, socket.socket]) -> tuple[int, socket.socket]:
    """Bind a port and keep it.

    The bind is exclusive, so no other holder can have the port, in this job or another. Only then is the
    socket marked reusable: whoever was given the port can listen on it (SO_REUSEADDR, as servers set) while
    we never do, and the kernel gives it to nobody else.
    """
    low, high = 20_000, _ephemeral_start()
    for port in random.sample(range(low, high), min(512, high - low)):
        holder = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
        try:
            if holder.family == socket.AF_INET6:
                holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            holder.bind(("", port))
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held[port] = holder
        return port, holder
    raise ClusterError(
        Finding(
            code="RE117",
            what=f"no free port between {low} and {high} on {socket.gethostname()}",
            why="512 of them were tried",
            remedy="end what holds them: `ss -ltn` lists listeners",
        )
    )


def _ephemeral_start() -> int:
    """Where the kernel's own choices begin; leases stay below."""
    try:
        return max(21_000, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))
    except (OSError, ValueError):
        return 32_768


def _raylet_variable(name: str) -> str | None:
    """A variable as the node was started with; Ray changes some of them for its workers."""
    try:
        environ = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = f"{name}=".encode()
    return next((entry[len(prefix) :].decode() for entry in environ if entry.startswith(prefix)), None)


def _vendor() -> str | None:
    """Which accelerator Ray's `GPU` stands for here, by the driver's traces; None when none is found."""
    traces = {
        "nvidia_gpu": "/proc/driver/nvidia",
        "amd_gpu": "/dev/kfd",
        "musa_gpu": "/dev/mtgpu.0",
        "kunlun_xpu": "/dev/xpu0",
        "intel_gpu": "/sys/module/xe",
    }
    return next((name for name, trace in traces.items() if Path(trace).exists()), None)
