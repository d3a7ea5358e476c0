"""The jobs this process has open. `own_job` is the default when no job is named."""

from __future__ import annotations

_open: list[str] = []
_driven: set[str] = set()


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
    """The only job this process has open; None if it has none open, or several."""
    return _open[0] if len(set(_open)) == 1 else None
