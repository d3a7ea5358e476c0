"""However a driver ends, its exit code is its own and nothing of its job is left."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import ray
from ray.util.placement_group import placement_group_table
from running import Program, alive, eventually, new_job

pytestmark = pytest.mark.ray
Run = Callable[..., Program]


def free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def leftovers(job: str, said: dict[str, Any]) -> dict[str, list[Any]]:
    """What there still is of a job, by Ray's records and by the machine's."""
    named = [actor for actor in ray.util.list_named_actors(all_namespaces=True) if job in actor["namespace"]]
    groups = [
        group["name"]
        for group in placement_group_table().values()
        if job in group["name"] and group["state"] != "REMOVED"
    ]
    return {
        "actors": named,
        "processes": [pid for pid in said["pids"] if alive(pid)],
        "placement groups": groups,
        "ports": [port for port in said["ports"] if not free(port)],
    }


def check_nothing_left(job: str, said: dict[str, Any]) -> None:
    def clean() -> bool:
        return not any(leftovers(job, said).values())

    try:
        eventually(clean, 5, f"nothing of {job} is left")
    except pytest.fail.Exception as failure:
        raise AssertionError(f"{failure}: {leftovers(job, said)}") from None


@pytest.mark.parametrize(("how", "code"), [("normal", 0), ("exception", 1), ("exit3", 3)])
def test_a_driver_that_ends_by_itself(connected: str, run: Run, how: str, code: int) -> None:
    """Pitfall: sys.exit(3) becomes exit code 0."""
    job = new_job("ends")
    program = run("job", how, job, env={"NODES": "2"})
    said = program.answer()
    assert program.end() == code, program.output
    assert ("LookupError: the program's own" in program.output) is (how == "exception")
    check_nothing_left(job, said)


@pytest.mark.parametrize(
    ("how", "number", "codes"),
    [
        ("waits in a call", signal.SIGINT, {130, -signal.SIGINT}),
        ("waits", signal.SIGTERM, {-signal.SIGTERM}),
        ("waits", signal.SIGKILL, {-signal.SIGKILL}),
        ("waits in a call", signal.SIGKILL, {-signal.SIGKILL}),
    ],
    ids=["SIGINT in a call", "SIGTERM", "SIGKILL", "SIGKILL in a call"],
)
def test_a_driver_that_is_ended(
    connected: str, run: Run, number: signal.Signals, codes: set[int], how: str
) -> None:
    job = new_job("ended")
    program = run("job", how, job, env={"NODES": "2"})
    said = program.answer()
    assert all(map(alive, said["pids"]))
    assert leftovers(job, said)["placement groups"]
    assert all(leftovers(job, said).values())
    program.signal(number)
    assert program.end(20) in codes, program.output
    assert ("KeyboardInterrupt" in program.output) is (number == signal.SIGINT)
    check_nothing_left(job, said)


def processes_of(session: str) -> list[psutil.Process]:
    """Every process that was started for a Ray session."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(session in part for part in process.info["cmdline"] or ()):
            found.append(process)
    return found


@pytest.mark.parametrize(
    ("how", "number", "codes"),
    [
        ("exception", None, {1}),
        ("waits", signal.SIGINT, {130, -signal.SIGINT}),
        ("waits", signal.SIGKILL, {-signal.SIGKILL}),
    ],
    ids=["exception", "SIGINT", "SIGKILL"],
)
def test_an_embedded_ray_ends_with_its_driver(
    run: Run,
    how: str,
    number: signal.Signals | None,
    codes: set[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    private = tmp_path_factory.mktemp("r")  # no Ray was noted there
    program = run(
        "job",
        how,
        new_job("embedded"),
        env={"RAY_ADDRESS": None, "NODES": "1", "ROOST_EMBEDDED": "1x2", "RAY_TMPDIR": str(private)},
    )
    said = program.answer(within=90)
    session = said["session"].rsplit("/", 1)[-1]
    if number is not None:
        assert processes_of(session)
        program.signal(number)
    assert program.end(30) in codes, program.output
    eventually(lambda: not processes_of(session), 15, "every process of the embedded Ray ended")
    eventually(lambda: not any(map(alive, said["pids"])), 5, "the workers ended")
