"""The latest snapshots of the jobs. Jobs are read while a page is open, at most once a second for all pages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Lock

from roost.engine.job_snapshot import JobSnapshot
from roost.engine.workers.call_summary import STEP
from roost.errors import RoostError
from roost.views.job_page import job_parts, jobs_parts
from roost.views.metrics_text import CallCounts, render_metrics

EVERY = 1.0  # seconds

Read = Callable[[], Sequence[JobSnapshot]]


class LiveJobs:
    """May be called from several threads."""

    def __init__(self, read: Read, clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self._lock = Lock()
        self._at = float("-inf")
        self._jobs: dict[str, JobSnapshot] = {}
        self._problem = ""  # why the last read failed
        self._parts: dict[str | None, dict[str, str]] = {}  # rendered, by job; None for the page of all
        self._used: dict[str, tuple[float, str]] = {}  # when the use of a job was drawn, and the picture
        self._counts = CallCounts()

    def job(self, name: str) -> JobSnapshot | None:
        with self._lock:
            self._refresh()
            return self._jobs.get(name)

    def jobs(self) -> list[JobSnapshot]:
        with self._lock:
            self._refresh()
            return list(self._jobs.values())

    def parts(self, job: str | None) -> dict[str, str]:
        """The parts of a job's page, or of the page of all jobs, rendered once for each read."""
        with self._lock:
            self._refresh()
            if job not in self._parts:
                found = self._jobs.get(job) if job is not None else None
                parts = jobs_parts(list(self._jobs.values())) if job is None else self._drawn(found)
                self._parts[job] = {**parts, "connection": self._problem}
            return self._parts[job]

    def _drawn(self, found: JobSnapshot | None) -> dict[str, str]:
        if found is None:
            return {}
        at, use = self._used.get(found.job, (float("-inf"), ""))
        parts = job_parts(found, use if found.time - at < STEP else None)
        if parts["use"] is not use:
            self._used[found.job] = (found.time, parts["use"])
        return parts

    def metrics(self) -> str:
        with self._lock:
            self._refresh()
            return render_metrics(list(self._jobs.values()), self._counts)

    def _refresh(self) -> None:
        if self._clock() - self._at < EVERY:
            return
        try:
            self._jobs, self._problem = {one.job: one for one in self._read()}, ""
        except RoostError as error:  # keep the last snapshots, and show why there are no newer ones
            self._problem = "; ".join(finding.what for finding in error.findings)
        self._counts.add(self._jobs.values())
        self._parts.clear()
        self._at = self._clock()
