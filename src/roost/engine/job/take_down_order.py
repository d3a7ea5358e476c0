"""The order to end a job, and how the job's processes learn of it.

`roost down` leaves a note with Ray's head and tells the job's manager, which answers the driver. From then on every
call and wait of the driver raises the same error. A driver that was stopped by a signal while `roost down` ended its
job from outside finds the note when it goes on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from roost.engine.connection.cluster_watch import ask_head, check_cluster, end_job
from roost.engine.connection.job_notes import read_note
from roost.engine.job.open_jobs import is_driver, own_job
from roost.errors import JobTakenDown

_runs: dict[str, str] = {}  # of the jobs that this process has open


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeDownOrder:
    by: str  # a user and a host
    time: float  # seconds since the epoch

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def error(self, job: str) -> JobTakenDown:
        when = datetime.fromtimestamp(self.time, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
        return JobTakenDown(
            code="RE150",
            what=f"job {job!r} was taken down by {self.by} at {when}",
            why="`roost down` ends every process of a job",
            remedy=f"start the job again; `roost logs {job}` shows what its processes wrote",
        )


def follow_run(job: str, run: str) -> None:
    """Make `check_order` ask about this run."""
    _runs[job] = run


def forget_run(job: str) -> None:
    _runs.pop(job, None)


def obey(job: str, order: TakeDownOrder) -> None:
    """End the job in this process. Interrupts the program's own code only in a driver without other open jobs."""
    end_job(job, order.error(job), interrupt=is_driver(job) and own_job() == job)


def order_against(job: str) -> JobTakenDown | None:
    """The error of `check_order`, or None. Code that handles another error raises this one instead."""
    try:
        check_order(job)
    except JobTakenDown as error:
        return error.with_traceback(None)
    return None


def check_order(job: str) -> None:
    """Raise if the job was taken down. Asks the head, so call it only when a process of the job is found dead."""
    check_cluster(job)
    run = _runs.get(job)
    note = ask_head(lambda: read_note(job, run)) if run else None
    if note is not None:
        obey(job, TakeDownOrder(**note))
        check_cluster(job)
