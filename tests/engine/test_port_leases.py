"""Leases of processes on a real Ray: no two overlap, whoever asks, and they end with who has them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from port_clients import Lessee, listen_and_close
from remains import is_free
from running import Program, eventually, module_path, new_job

import roost
from roost.engine.channels import undecided as undecided_module
from roost.engine.channels.undecided import Undecided
from roost.engine.connection.actors import on_node
from roost.engine.connection.discovery import LiveNode
from roost.engine.job.node_agent import NodeAgent
from roost.engine.ports.port_shelf import PortShelf
from roost.engine.processes.process_facts import Owner
from roost.engine.ray_backend.ray_workers import RayWorkers
from roost.engine.ray_backend.starting import GroupStart

pytestmark = pytest.mark.ray


@ray.remote(num_cpus=0)
def outside(job: str) -> str:
    """What a process is told that asks for a lease of a job."""
    os.environ["ROOST_JOB"] = job
    try:
        return str(roost.lease_ports())
    except roost.ClusterError as error:
        return str(error)
    finally:
        del os.environ["ROOST_JOB"]


LEASES = 150  # of each worker; every tenth has four ports
PAIR = roost.NodePlacementStrategy([0, 0])


# -- two jobs on one host -----------------------------------------------------------------------------------


def test_no_two_leases_overlap_and_none_is_lost(
    cluster: roost.Cluster, clusters: Callable[..., roost.Cluster]
) -> None:
    """Pitfall: two engines, or two runs on one host, get the same port."""
    jobs = [cluster, clusters(num_nodes=1)]
    groups = [Lessee.create_group().launch(job, PAIR, name="lessees") for job in jobs]
    running = [group.lease_many(LEASES) for group in groups]
    leased = [result.wait(timeout=240) for result in running]
    for of_job in leased:
        for of_worker in of_job:
            assert [len(ports) for ports in of_worker] == [4 if n % 10 == 9 else 1 for n in range(LEASES)]
            assert all(ports == list(range(ports[0], ports[0] + len(ports))) for ports in of_worker)
    by_job = [[port for of_worker in of_job for ports in of_worker for port in ports] for of_job in leased]
    everything = by_job[0] + by_job[1]
    assert len(everything) == len(set(everything)) == 2 * 2 * (LEASES + LEASES // 10 * 3)
    assert not any(map(is_free, everything))
    groups[0].shutdown()  # its processes end, and so do their leases; those of the others stand
    eventually(lambda: all(map(is_free, by_job[0])), 30, "the leases of ended workers are free")
    assert not any(map(is_free, by_job[1]))
    jobs[1].shutdown()
    eventually(lambda: all(map(is_free, by_job[1])), 30, "the leases of an ended job are free")


# -- a Ray with few ports -----------------------------------------------------------------------------------


class Job:
    """A job of two workers in a process of its own."""

    def __init__(self, program: Program) -> None:
        self.program, self.pids = program, program.answer()

    def __call__(self, rank: int, method: str, *args: Any) -> Any:
        self.program.tell(json.dumps([rank, method, *args]))
        return self.program.answer()


@pytest.fixture(scope="module")
def narrow() -> range:
    """Ports: the ones that a Ray of this module may lease, ten in all. No other job of the tests leases there."""
    starts = random.sample(range(61_000, 65_500), 500)
    return next(ten for ten in (range(start, start + 10) for start in starts) if all(map(is_free, ten)))


@pytest.fixture(scope="module")
def whole_job(narrow: range) -> Iterator[Job]:
    """A job on a Ray with few ports. It holds two ports for itself: the job's and the group's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOST_PORT_RANGE", f"{narrow[0]}-{narrow[-1]}")
        patch.setenv("PYTHONPATH", module_path())
        nodes = roost.embedded("1x1")
        address = nodes.start()
    program = Program("leasing", new_job("leasing"), env={"RAY_ADDRESS": address})
    try:
        yield Job(program)
    finally:
        program.kill()
        nodes.stop()


@pytest.fixture
def job(whole_job: Job) -> Iterator[Job]:
    """Its workers have leased nothing. A test that kills one of them starts it again."""
    yield whole_job
    for rank in range(2):
        assert whole_job(rank, "release_all") is None


def test_running_out_and_who_may_have_what(narrow: range, job: Job) -> None:
    first, second = job(0, "lease", 2)
    assert job(0, "release") == [first, second]
    with socket.socket() as other:  # of another job, say
        other.bind(("", first))
        mine = job(0, "lease_all")
        assert len(mine) == 7
        assert set(mine) < {*narrow} - {first}
        refused = job(1, "lease")
        assert refused["codes"] == ["RE117"]
        assert refused["text"] == (
            f"error[RE117]: no port is free in {narrow[0]}-{narrow[-1]} on {socket.gethostname()}\n"
            f"  = why: this job holds 9 of these 10 ports, and the others are in use\n"
            "  = help: release leases, or end what listens there (`ss -ltn`), "
            "or widen ROOST_PORT_RANGE on the node"
        )
        freed = job(0, "release")
        assert job(1, "lease") == freed
        assert job(0, "lease")["codes"] == ["RE117"]
        for port in {*mine} - {*freed}:  # the others stand
            assert not is_free(port)
            listen_and_close(port)
    assert job(0, "lease") == [first]
    assert job(0, "lease", 20_000)["codes"] == ["RC104"]


def test_a_killed_holders_ports_can_be_leased_again(job: Job) -> None:
    # The job's own two ports part the other eight into three pieces at most: one of them has two.
    dead = job(0, "lease", 2, True)
    kept = job(1, "lease_all")
    assert (len(dead), len(kept)) == (2, 6)
    os.kill(job.pids[0], signal.SIGKILL)
    again = eventually(lambda: isinstance(got := job(1, "lease", 2), list) and got, 30, "its ports are free")
    assert sorted(again) == sorted(dead)
    assert not any(map(is_free, kept))
    job.pids = job(0, "restart")


def test_a_lease_nobody_waited_for_is_given_back(job: Job) -> None:
    for _ in range(3):
        late = job(0, "lease", 5, False, 0)
        if isinstance(late, list):  # it came after all
            job(0, "release")
        else:
            assert late["codes"] == ["RE112"]
    free: list[int] = []

    def all_free() -> bool:
        free.extend(job(1, "lease_all"))
        return len(free) == 8

    eventually(all_free, 30, "what nobody waited for is free again")


# -- where and whose ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def worker(cluster: roost.Cluster) -> Iterator[roost.WorkerGroup]:
    with Lessee.create_group().launch(cluster, roost.NodePlacementStrategy([0, 2]), name="pair") as group:
        yield group


def test_a_lease_says_where_and_can_be_released_from_anywhere(
    cluster: roost.Cluster, worker: roost.WorkerGroup
) -> None:
    first, second = worker.lease(3, consecutive=True).wait(timeout=60)
    for lease, node in ((first, 0), (second, 2)):
        assert lease.host == cluster.node_infos[node].ip
        assert lease.port == lease.ports[0]
        assert repr(lease) == f"<lease of ports {lease.port}-{lease.port + 2} on {lease.host}>"
        assert not any(map(is_free, lease.ports))
    first.release()
    assert all(map(is_free, first.ports))
    assert not any(map(is_free, second.ports))
    worker.release().wait(timeout=60)
    assert all(map(is_free, second.ports))


def test_the_driver_leases_on_any_node_for_the_job(cluster: roost.Cluster) -> None:
    with cluster.lease_ports(2, 4, consecutive=True) as lease:
        assert lease.host == cluster.node_infos[2].ip
        assert not any(map(is_free, lease.ports))
    assert all(map(is_free, lease.ports))
    with pytest.raises(roost.ClusterError, match="node 3 does not exist"):
        cluster.lease_ports(3)


def test_a_small_job(cluster: roost.Cluster, clusters: Callable[..., roost.Cluster]) -> None:
    """Its leases end with it, and a process outside its nodes is told that it is."""
    made = clusters(num_nodes=1)
    lease = made.lease_ports(0)
    assert not is_free(lease.port)
    said = ray.get(
        outside.options(scheduling_strategy=on_node(cluster.node_infos[2].node_id)).remote(made.job),
        timeout=60,
    )
    ip = cluster.node_infos[2].ip
    assert said == (
        f"error[RE114]: this process runs on {ip}, which is not a node of job '{made.job}'\n"
        f"  = why: ports are held and devices are locked on the job's own nodes: {ip}\n"
        "  = help: ask for it in a worker, or for a node by its rank: cluster.lease_ports(node_rank)"
    )
    made.shutdown()
    eventually(lambda: is_free(lease.port), 30, "a lease ends with its job")
    lease.release()  # no matter
    with pytest.raises(roost.ClusterError, match="was shut down"):
        made.lease_ports(0)


def test_a_driver_is_the_owner_of_what_it_leases(
    cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOST_JOB", cluster.job)
    with roost.lease_ports() as lease:
        assert not is_free(lease.port)
    assert is_free(lease.port)


def test_inline_workers_lease_in_this_process() -> None:
    with roost.Cluster(num_nodes=2, inline="2x2") as inline:
        group = Lessee.create_group().launch(inline, roost.NodePlacementStrategy([0, 1]))
        leases = group.lease(2).wait()
        assert [lease.host for lease in leases] == ["127.0.0.1"] * 2
        assert not any(is_free(port) for lease in leases for port in lease.ports)
        leases[0].release()
        assert all(map(is_free, leases[0].ports))
        assert not is_free(inline.lease_ports(1).port)
        with pytest.raises(roost.ClusterError, match="node 2 does not exist"):
            inline.lease_ports(2)
    assert all(map(is_free, leases[1].ports))


def test_a_group_that_is_stopped_twice_releases_only_its_own_port(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = NodeAgent()
    agent._shelf = PortShelf(allowed=range(23_456, 23_457))

    class Remote:
        """Calls the agent at once, as if it were an actor."""

        def __getattr__(self, method: str) -> Any:
            return SimpleNamespace(remote=lambda *args: asyncio.run(getattr(agent, method)(*args)))

    remote, mine, theirs = Remote(), Owner(), Owner()
    (port,) = remote.lease_ports.remote(1, False, mine)
    start = GroupStart.__new__(GroupStart)  # its constructor puts the program into Ray's store
    start.leader, start.port_owner, start.master_port = LiveNode(None, remote), mine, port  # type: ignore[arg-type]
    start.site = SimpleNamespace(live=[start.leader])  # type: ignore[assignment]
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    plan = roost.plan({"cluster": {"component_placement": {"twice": "0"}}}, "1x1")
    group = RayWorkers("job", "twice", plan.components["twice"].members, plan.inventory.nodes, start)
    group.stop()
    assert remote.lease_ports.remote(1, False, theirs) == [port]
    group.stop()
    assert agent._shelf.held == [port]
    agent._shelf.close()


def test_only_so_many_withdrawn_requests_are_remembered() -> None:
    undecided = Undecided()
    for number in range(undecided_module.LATE + 5):
        undecided.withdraw(number)
    assert len(undecided._withdrawn) == undecided_module.LATE
    assert not undecided.was_withdrawn(4)
    assert undecided.was_withdrawn(5)
    assert not undecided.was_withdrawn(5)


def test_a_request_that_was_withdrawn_before_it_came_is_not_granted() -> None:
    """Ray may deliver the two calls of a process in the other order."""

    async def asked() -> None:
        agent, lease, lock = NodeAgent(), Owner(), Owner()
        await agent.withdraw_lease(lease)
        assert await agent.lease_ports(2, False, lease) == []
        await agent.withdraw(lock)
        with pytest.raises(roost.ClusterError, match="withdrawn"):
            await agent.acquire(lock, [0], 1.0, None)
        assert await agent.hold_on(0) is None
        kept = await agent.lease_ports(2, False, lease)  # asked for again
        assert len(kept) == 2
        await agent.withdraw_lease(lease)
        assert all(map(is_free, kept))

    asyncio.run(asked())
