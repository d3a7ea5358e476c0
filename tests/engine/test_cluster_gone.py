"""When the cluster itself goes, every driver is told so, and ends with its own exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import psutil
import pytest
from running import Program, new_job

import roost
from roost.engine.connection import ray_connection
from roost.engine.connection.embedded import EmbeddedCluster

pytestmark = pytest.mark.ray

WITHIN = 50  # seconds on a busy machine, less than the minute after which Ray itself ends a program


@pytest.fixture
def ray_here() -> Iterator[EmbeddedCluster]:
    nodes = roost.embedded("1x2")
    nodes.start()
    yield nodes
    nodes.stop()


def ray_processes(nodes: EmbeddedCluster, name: str) -> list[psutil.Process]:
    """Its processes of this name."""
    directory = nodes._directory
    return [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == name and directory in " ".join(process.info["cmdline"] or ())
    ]


@pytest.mark.parametrize(
    ("names", "number", "modes"),
    [
        pytest.param(["gcs_server"], signal.SIGKILL, ("sleeps", "catches nothing"), id="head killed"),
        pytest.param(
            ["gcs_server"],
            signal.SIGKILL,
            ("waits", "launches"),
            id="head killed, launching",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["raylet"],
            signal.SIGKILL,
            ("waits", "sleeps"),
            id="the driver's node killed",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["raylet", "gcs_server"],
            signal.SIGTERM,
            ("waits", "sleeps"),
            id="ray stop",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_two_drivers_end_with_an_error_about_the_cluster(
    ray_here: EmbeddedCluster, names: list[str], number: int, modes: tuple[str, str]
) -> None:
    env: dict[str, str | None] = {"RAY_ADDRESS": ray_here.address}
    drivers = [
        Program("outliving", new_job("gone"), str(device), mode, env=env) for device, mode in enumerate(modes)
    ]
    try:
        for driver in drivers:
            driver.answer()
        for process in [one for name in names for one in ray_processes(ray_here, name)]:
            process.send_signal(number)
        gone = f"the Ray cluster at {ray_here.address} is gone"
        for driver, mode in zip(drivers, modes, strict=True):
            if (
                mode == "catches nothing"
            ):  # Ray's own hook would wait a minute for the head, then end the program
                assert driver.end(within=WITHIN) == 1
                assert f"ClusterGone: error[RE128]: {gone}" in driver.output
                continue
            said = driver.answer(within=WITHIN)
            assert said["codes"] == ["RE128"]
            assert gone in said["text"]
            assert "frail" not in said["text"]
            assert driver.end(within=WITHIN) == 42
    finally:
        for driver in drivers:
            driver.kill()


def test_nothing_waits_forever_for_a_head_that_is_stopped(
    ray_here: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts connections, so it is not gone. What needs no head goes on."""
    driver = Program("unanswered", new_job("stopped"), env={"RAY_ADDRESS": ray_here.address})
    (head,) = ray_processes(ray_here, "gcs_server")
    try:
        driver.answer()
        ray_connection._knock(ray_here.address)
        head.suspend()
        driver.tell("go on")
        assert driver.answer() == {
            "call": "done",
            "call on a dead one": ["RE111"],
            **{asked: ["RE112"] for asked in ("channel", "launch", "restart", "shutdown")},
        }
        assert driver.end() == 42
        monkeypatch.setattr(ray_connection, "HEAD_WITHIN", 1.0)
        with pytest.raises(TimeoutError, match="it accepts connections, and has not answered in 1 s"):
            ray_connection._knock(ray_here.address)
    finally:
        head.resume()
        driver.kill()
