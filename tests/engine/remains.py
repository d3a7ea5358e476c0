"""Finds what a job leaves behind: processes, ports and accelerators."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any

import psutil
import ray
from ray.util.placement_group import placement_group_table
from running import alive


def remains(job: str, pids: Iterable[int], ports: Iterable[int]) -> list[str]:
    """Its actors, processes, reservations and ports that are still there. This process must be connected."""
    actors = [
        f"actor {entry['name']}"
        for entry in ray.util.list_named_actors(all_namespaces=True)
        if entry["namespace"] == f"roost.{job}"
    ]
    reserved = [
        f"placement group {group['name']}"
        for group in placement_group_table().values()
        if group["name"].startswith(f"roost/{job}/") and group["state"] != "REMOVED"
    ]
    processes = [f"process {pid} ({told})" for pid in pids if (told := state_of(pid))]
    return actors + reserved + processes + [f"port {port}" for port in ports if not is_free(port)]


def state_of(pid: int) -> str:
    """The state and the command of a living process; empty for others."""
    try:
        return " ".join([psutil.Process(pid).status(), *psutil.Process(pid).cmdline()]) if alive(pid) else ""
    except psutil.NoSuchProcess:
        return ""


def held_by(job: str) -> float:
    """How many accelerators a job has reserved."""
    return sum(
        bundle.get("GPU", 0)
        for group in placement_group_table().values()
        if group["name"].startswith(f"roost/{job}/") and group["state"] == "CREATED"
        for bundle in group["bundles"].values()
    )


def is_free(port: int) -> bool:
    """Whether nobody holds the port on any address, by an exclusive bind."""
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
        if probe.family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def assert_gone(job: str, pids: Sequence[int], ports: Sequence[int], within: float = 5.0) -> None:
    deadline = time.monotonic() + within
    while left := remains(job, pids, ports):
        assert time.monotonic() < deadline, f"after {within:g} s: {', '.join(left)}"
        time.sleep(0.05)


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def assert_ended(processes: Sequence[psutil.Process], within: float = 30.0) -> None:
    """A process that is awaited by nobody stays a zombie on some machines; it has ended all the same."""
    deadline = time.monotonic() + within
    while left := [process for process in processes if _runs(process)]:
        assert time.monotonic() < deadline, f"after {within:g} s: {[_words(process) for process in left]}"
        time.sleep(0.05)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _words(process: psutil.Process) -> Any:
    try:
        return process.pid, " ".join(process.cmdline())[:80]
    except psutil.NoSuchProcess:
        return process.pid
