"""A node as its agent sees it: the state of processes and of the machine, as values."""

from __future__ import annotations

from dataclasses import dataclass

from roost.engine.processes.machine import Machine
from roost.engine.workers.call_summary import CallSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSight:
    state: str  # "running", "stopped" by a signal, "hung" (no heartbeat), or "dead"
    calls: CallSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSight:
    processes: tuple[ProcessSight, ...]  # in the order in which they were asked for
    machine: Machine
    driver: str = ""  # the state of the job's driver, if it runs on this node
