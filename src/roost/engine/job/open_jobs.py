"""The jobs this process has open, so that what asks for "the job" means its own."""

from __future__ import annotations

_open: list[str] = []


def job_opened(job: str) -> None:
    _open.append(job)


def job_closed(job: str) -> None:
    if job in _open:
        _open.remove(job)


def own_job() -> str | None:
    """The job this process works in; None when it has none open, or several."""
    return _open[0] if len(set(_open)) == 1 else None
