"""When a driver dies, by whatever means, nothing of its job is left, and nobody else notices."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from crew import FailsToStart, Reporter
from killing import NeverConstructed, Parent
from remains import assert_ended, assert_gone, descendants, remains
from running import Program, alive, eventually, new_job

import roost

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def neighbour(cluster: roost.Cluster) -> Iterator[roost.WorkerGroup]:
    """Another job on the same nodes; whatever happens to the victims, it goes on."""
    strategy = roost.FlexiblePlacementStrategy([[0]])
    with Reporter.create_group().launch(cluster, placement_strategy=strategy, name="neighbour") as group:
        yield group


@pytest.fixture(autouse=True)
def untouched(request: pytest.FixtureRequest) -> Iterator[None]:
    """The neighbour has the same processes after a test as before."""
    group = request.getfixturevalue("neighbour")
    pids = group.pid().wait(timeout=60)
    yield
    assert group.pid().wait(timeout=60) == pids


def noted(notes: Path, workers: int) -> tuple[list[int], list[int]]:
    """Pids and ports that workers note in their constructors, once all have."""

    def complete() -> list[list[str]]:
        texts = [text for note in notes.iterdir() if (text := note.read_text().split())]
        return texts if len(texts) == workers else []

    texts = eventually(complete, 60, "all constructors are reached")
    return [int(pid) for _, *pids in texts for pid in pids], [int(port) for port, *_ in texts]


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("in a call", signal.SIGKILL),
        ("while starting", signal.SIGKILL),
        pytest.param("idle", signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param("idle", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_left(run: Callable[..., Program], tmp_path: Path, how: str, number: int) -> None:
    job = new_job("victim")
    program = run("ending", job, how, "1,2", str(tmp_path), env={"NODES": "1"})
    said = program.answer(within=120)
    pids, ports = said["pids"], said["ports"]
    if how == "while starting":
        own_pids, own_ports = noted(tmp_path, 2)
        pids, ports = pids + own_pids, ports + own_ports
    there = remains(job, pids, ports)
    assert {text.split()[0] for text in there} == {"actor", "placement", "process", "port"}
    program.signal(number)
    assert program.end() == -number
    assert_gone(job, pids, ports)


@pytest.mark.parametrize("how", ["killed", "restarted", "shut down"])
def test_children_end_with_their_worker_and_no_other(clusters: Callable[..., Any], how: str) -> None:
    made = clusters(num_nodes=1)
    group = Parent.create_group().launch(made, roost.FlexiblePlacementStrategy([[1], [2]]))
    other, ended = group.family().wait(timeout=60)
    if how == "killed":
        with pytest.raises(roost.WorkerDied):
            group.execute_on(1).killed().wait(timeout=60)
    elif how == "restarted":
        group.restart_ranks(1)
    else:
        group.shutdown()
        ended += other
    eventually(lambda: not any(map(alive, ended)), 30, "its children end")
    assert how == "shut down" or all(map(alive, other))


def test_shutdown_twice_and_after_a_failed_start(clusters: Callable[..., Any]) -> None:
    made = clusters(num_nodes=1)
    group = Reporter.create_group().launch(made, roost.FlexiblePlacementStrategy([[1]]))
    pids = group.pid().wait(timeout=60)
    with pytest.raises(roost.LaunchError, match="OSError: no"):
        FailsToStart.create_group(1, partial(OSError, "no")).launch(
            made, roost.FlexiblePlacementStrategy([[1], [2]])
        )
    assert group.pid().wait(timeout=60) == pids
    for thing in (group, group, made, made, group):
        thing.shutdown()
    assert_gone(made.job, pids, [made.master_port])
    with pytest.raises(roost.RoostError, match="was shut down"):
        group.pid()
    with pytest.raises(roost.ClusterError, match="was shut down"):
        Reporter.create_group().launch(made, roost.NodePlacementStrategy([0]))
    assert ray.is_initialized()  # the test's own connection


def test_shutdown_while_another_thread_launches(clusters: Callable[..., Any], tmp_path: Path) -> None:
    """Workers without accelerators, so that no reservation takes them along."""
    made = clusters(num_nodes=1)
    launcher = NeverConstructed.create_group(str(tmp_path))
    with ThreadPoolExecutor(1) as threads:
        launch = threads.submit(launcher.launch, made, roost.NodePlacementStrategy([0, 0]))
        pids, ports = noted(tmp_path, 2)
        made.shutdown()
        with pytest.raises(roost.LaunchError, match="NeverConstructed rank 0"):
            launch.result(timeout=30)
    assert_gone(made.job, pids, ports)


def test_an_embedded_ray_ends_with_its_killed_driver() -> None:
    with tempfile.TemporaryDirectory(prefix="re-") as place:
        env = {
            "RAY_ADDRESS": None,
            "ROOST_EMBEDDED": "1x2",
            "NODES": "1",
            "RAY_TMPDIR": place,
            "TMPDIR": place,
        }
        driver = Program("ending", new_job(), "in a call", "0,1", env=env)
        try:
            said = driver.answer(within=120)
            processes = descendants(driver.process.pid)
            assert {process.pid for process in processes} >= set(said["workers"])
            processes += map(psutil.Process, said["pids"])  # daemons are below no other process
            assert any("roost.engine.connection.embedded" in process.cmdline() for process in processes)
        finally:
            driver.kill()
        assert_ended(processes)
        eventually(lambda: not list(Path(place).iterdir()), 30, "its directory is gone")
