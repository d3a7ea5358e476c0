"""One real Ray of three nodes for the whole session, and programs that are run against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import roost

# Ray is imported by the fixtures, so that tests without it start at once.


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """A Ray of 3 nodes with 4 virtual accelerators each, where the tests' workers can be imported."""
    from running import module_path

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", module_path())
        nodes = roost.embedded("3x4")
        where = nodes.start()
    yield where
    nodes.stop()


@pytest.fixture(scope="session")
def connected(address: str) -> Iterator[str]:
    """This process is connected, as a program that called `ray.init` itself."""
    import ray

    ray.init(address=address, namespace="roost", log_to_driver=False)
    yield address
    ray.shutdown()


@pytest.fixture(scope="session")
def shared_job(connected: str) -> Iterator[roost.Cluster]:
    """A job for the whole session: starting one costs seconds."""
    from running import new_job

    with roost.Cluster(num_nodes=3, job=new_job("shared")) as made:
        roost.Cluster._made.pop(made.job)  # tests that make a cluster of their own begin without one
        yield made


@pytest.fixture(scope="module")
def cluster(shared_job: roost.Cluster) -> Iterator[roost.Cluster]:
    """A job that the tests of one module share. It holds nothing when a module begins."""
    yield shared_job
    shared_job._backend.reservation.release()
    shared_job._backend.accelerators.launches.clear()
    _end_channels(shared_job.job)


def _end_channels(job: str) -> None:
    """Idle processes take processor time from the tests of the next modules."""
    import ray

    from roost.engine.connection.actors import job_namespace

    for named in ray.util.list_named_actors(all_namespaces=True):
        if named["namespace"] == job_namespace(job) and named["name"].startswith(
            ("channel:", "data-buffer:")
        ):
            ray.kill(ray.get_actor(**named))


@pytest.fixture
def clusters(connected: str) -> Iterator[Callable[..., roost.Cluster]]:
    """Jobs of one test: `clusters(num_nodes=1)`. They end with it."""
    from running import new_job

    made: list[roost.Cluster] = []

    def make(**options: Any) -> roost.Cluster:
        made.append(roost.Cluster(**{"num_nodes": 3, "job": new_job(), "timeout": 60, **options}))
        return made[-1]

    yield make
    for one in reversed(made):
        one.shutdown()


@dataclass(frozen=True)
class EndedJob:
    """A job that was shut down, and what it had."""

    cluster: roost.Cluster
    actor: str
    actor_pid: int
    lock: roost.DeviceLock
    channel: roost.Channel
    channel_pid: int


@pytest.fixture(scope="session")
def ended_job(connected: str) -> EndedJob:
    """It had an actor of a plain class, a device lock and a channel when it ended."""
    import ray
    from channel_users import pid_of
    from crew import Plain
    from running import new_job

    made = roost.Cluster(num_nodes=1, job=new_job("ended"), timeout=60)
    try:
        actor = made.allocate(Plain, "short-lived", 0, None, {})
        pid = ray.get(actor.pid.remote(), timeout=60)
        lock = made.device_lock(0, [0])
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ROOST_JOB", made.job)
            channel = roost.Channel("short-lived")
            channel.put(1)
            channel_pid = pid_of(channel)
    finally:
        made.shutdown()
    return EndedJob(made, "short-lived", pid, lock, channel, channel_pid)


@pytest.fixture(scope="session")
def hosts() -> Iterator[Any]:
    """Three hosts with addresses of their own; a test starts Ray on them, and stops it."""
    from hosts import Hosts

    made = Hosts()
    try:
        made.create()
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="session")
def on_hosts(hosts: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a job tells on three hosts of 8 accelerators, and on two that declare their ranks."""
    from hosts import drive

    plan = tmp_path_factory.mktemp("hosts") / "plan.json"
    try:
        hosts.start_ray(0, "--num-gpus=8")
        hosts.start_ray(2, "--num-gpus=8")  # before the second
        hosts.start_ray(1, "--num-gpus=8", CUDA_VISIBLE_DEVICES="8,9,10,11,12,13,14,15")
        natural = drive(hosts, 3, plan)
        hosts.stop_ray()
        for number, rank in enumerate("10"):  # one after the other: they share the head's directory
            hosts.start_ray(number, "--num-gpus=8", ROOST_NODE_RANK=rank)
        declared = drive(hosts, 2, plan)
    finally:
        hosts.stop_ray()
    return {"natural": natural, "declared": declared}


@pytest.fixture
def run(address: str) -> Iterator[Callable[..., Any]]:
    """Start one of the programs against the session's Ray. What still runs at the end is killed."""
    from running import Program

    started: list[Program] = []

    def start(name: str, *args: str, env: dict[str, str | None] | None = None, **more: Any) -> Program:
        program = Program(name, *args, env={"RAY_ADDRESS": address, **(env or {})}, **more)
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()
