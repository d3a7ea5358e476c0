"""The jobs this process has open, and how it learns of the order to end one.

`roost down` leaves a note with Ray's head and tells the job's manager, which answers the driver. From then on every
call and wait of the driver raises the same error. A driver that was stopped by a signal while `roost down` ended its
job from outside finds the note when it goes on. Notes outlive every process of the job.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

from ray.experimental import internal_kv

from roost.engine.connection.cluster_watch import ask_head, check_cluster, end_job
from roost.errors import JobTakenDown, NoAnswer

ORDER_WITHIN = 10.0  # seconds that the head has to tell whether a job was taken down
_SPACE = b"roost"
_open: list[str] = []
_driven: set[str] = set()
_runs: dict[str, str] = {}


def job_opened(job: str, driver: bool = False) -> None:
    _open.append(job)
    if driver:
        _driven.add(job)


def job_closed(job: str) -> None:
    if job in _open:
        _open.remove(job)
    if job not in _open:
        _driven.discard(job)


def is_driver(job: str) -> bool:
    """Whether this process is the driver of the job. A job ends with its driver."""
    return job in _driven


def own_job() -> str | None:
    """The only job this process has open, the default when no job is named; None if it has none open, or several."""
    return _open[0] if len(set(_open)) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeDownOrder:
    by: str  # a user and a host
    time: float  # seconds since the epoch

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


def leave_order(job: str, run: str, order: TakeDownOrder) -> None:
    """Leave a note about one run of the job with Ray's head."""
    note = json.dumps(asdict(order)).encode()
    internal_kv._internal_kv_put(_key(job, run), note, overwrite=False, namespace=_SPACE)


def _left_order(job: str, run: str) -> TakeDownOrder | None:
    """The order against one run of the job; None if there is none, or if this process has disconnected meanwhile."""
    client = internal_kv.global_gcs_client
    note = None if client is None else client.internal_kv_get(_key(job, run), _SPACE)
    return None if note is None else TakeDownOrder(**json.loads(note))


def _key(job: str, run: str) -> bytes:
    return f"taken-down/{job}/{run}".encode()


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
    run, order = _runs.get(job), None
    if run:
        with suppress(NoAnswer):  # the caller has an error of its own to tell
            order = ask_head(lambda: _left_order(job, run), ORDER_WITHIN)
    if order is not None:
        obey(job, order)
        check_cluster(job)
