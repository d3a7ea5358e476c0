"""What a reader that stays sees of a job."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from frail import Frail
from running import eventually, new_job

import roost
from roost.engine.connection.implicit_start import OWN_THREADS
from roost.engine.job import job_reader
from roost.engine.job.job_reader import JobsReader
from roost.errors import JobEnded


@pytest.mark.ray
def test_a_job_that_is_started_again_under_its_name_is_read_anew(
    clusters: Callable[..., roost.Cluster],
) -> None:
    """Both runs have launched once, so neither its managers' revision nor the number of events tells them apart."""
    job, lives = new_job("again"), []
    reader = JobsReader(job)

    def seen() -> tuple[str, list[int | None]]:
        (found,) = reader.read()
        return found.state, [one.pid for one in found.processes]

    for _ in range(2):
        made = clusters(num_nodes=1, job=job)
        with Frail.create_group().launch(made, roost.PackedPlacementStrategy(0, 0), name="frail") as group:
            lives.append(group.pid().wait(timeout=60))
            eventually(lambda: seen() == ("running", lives[-1]), 30, "its process is shown")
            (event,) = reader.read()[0].events
            assert event.action == "launched"
            made.shutdown()
        eventually(lambda: seen() == ("ended", lives[-1]), 30, "its end is shown")
    assert lives[0] != lives[1]


def test_the_threads_that_read_jobs_never_start_a_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    class Noting:
        def __init__(self, job: str) -> None: ...

        def read(self, within: float) -> None:
            names.append(threading.current_thread().name)
            raise JobEnded(code="RE106", what="it has ended")

    monkeypatch.setattr(job_reader, "JobReader", Noting)
    with pytest.raises(JobEnded):
        JobsReader("job").read()
    assert [name.startswith(OWN_THREADS) for name in names] == [True]
