"""What went wrong with an engine, in its own terms: which one, where, and why."""

from __future__ import annotations

from roost.engine.workers.remote_errors import in_one_line
from roost.errors import Finding, LaunchError, RoostError, WorkerDied, WorkerError
from roost.rl.engine_group import RunningEngines
from roost.rl.server_process import ServerFailed


def engine_failed(group: RunningEngines, error: WorkerError) -> LaunchError:
    cause = error.__cause__
    remedy = cause.findings[0].remedy if isinstance(cause, RoostError) else ""
    if isinstance(error, WorkerDied) or cause is None:
        why = error.findings[0].why
        remedy = "its process ended while starting: the worker's log has the reason"
    else:
        why = in_one_line(cause)
    failed = ServerFailed(
        Finding(code="RE120", what=f"{_who(group, error.rank)} did not start", why=why[:600], remedy=remedy)
    )
    failed.tail = getattr(cause, "tail", "")
    return failed


def engine_late(group: RunningEngines, rank: int, within: float) -> LaunchError:
    return LaunchError(
        Finding(
            code="RE120",
            what=f"{_who(group, rank)} is not ready after {within:g} s",
            why="its start has not returned",
            remedy="give it more time with RolloutManager(timeout=...), or look at the worker's log",
        )
    )


def _who(group: RunningEngines, rank: int) -> str:
    engine, process = divmod(rank, group.processes)
    of = f", process {process} of {group.processes}" if group.processes > 1 else ""
    return f"engine {engine} of {group.component} ({group.seat(rank)}{of})"
