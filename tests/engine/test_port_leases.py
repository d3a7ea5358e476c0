"""Leases of processes on a real Ray: no two overlap, whoever asks, and they end with who has them."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from port_clients import Lessee, listen_and_close
from remains import is_free
from running import Program, eventually, module_path, new_job

import roost
from roost.engine.connection.actors import on_node
from roost.engine.ports.port_shelf import PortShelf

pytestmark = pytest.mark.ray
FOUR = roost.NodePlacementStrategy([0] * 4)


# -- two jobs on one host -----------------------------------------------------------------------------------


def test_no_two_leases_overlap_and_none_is_lost(clusters: Callable[..., roost.Cluster]) -> None:
    """Pitfall: two engines, or two runs on one host, get the same port."""
    jobs = [clusters(num_nodes=1), clusters(num_nodes=1)]
    groups = [Lessee.create_group().launch(job, FOUR, name="lessees") for job in jobs]
    running = [group.lease_many(500) for group in groups]
    leased = [result.wait(timeout=240) for result in running]
    for of_job in leased:
        for of_worker in of_job:
            assert [len(ports) for ports in of_worker] == [4 if n % 10 == 9 else 1 for n in range(500)]
            assert all(ports == list(range(ports[0], ports[0] + len(ports))) for ports in of_worker)
    by_job = [[port for of_worker in of_job for ports in of_worker for port in ports] for of_job in leased]
    everything = by_job[0] + by_job[1]
    assert len(everything) == len(set(everything)) == 2 * 4 * (450 + 50 * 4)
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

    def restart(self, rank: int) -> None:
        self.pids = self(rank, "restart")


@pytest.fixture(scope="module")
def narrow() -> Iterator[tuple[str, range]]:
    """The address of a Ray whose jobs may lease twelve ports in all, and which."""
    shelf = PortShelf()
    first = shelf.take(12, consecutive=True)[0]
    shelf.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOST_PORT_RANGE", f"{first}-{first + 11}")
        patch.setenv("PYTHONPATH", module_path())
        nodes = roost.embedded("1x1")
        address = nodes.start()
    yield address, range(first, first + 12)
    nodes.stop()


@pytest.fixture(scope="module")
def both_jobs(narrow: tuple[str, range]) -> Iterator[tuple[Job, Job]]:
    """Each holds two ports for itself: the job's and the group's."""
    env: dict[str, str | None] = {"RAY_ADDRESS": narrow[0]}
    programs = [Program("leasing", new_job("leasing"), env=env) for _ in range(2)]
    try:
        yield Job(programs[0]), Job(programs[1])
    finally:
        for program in programs:
            program.kill()


@pytest.fixture
def two_jobs(both_jobs: tuple[Job, Job]) -> Iterator[tuple[Job, Job]]:
    """Two jobs whose workers have leased nothing. A test that kills one of them starts it again."""
    yield both_jobs
    for job in both_jobs:
        for rank in range(2):
            assert job(rank, "release_all") is None


def test_running_out_and_who_may_have_what(narrow: tuple[str, range], two_jobs: tuple[Job, Job]) -> None:
    ports, (ours, theirs) = narrow[1], two_jobs
    mine = ours(0, "lease_all")
    assert len(mine) == 8
    assert set(mine) < set(ports)
    for job, held in ((ours, 10), (theirs, 2)):  # another job cannot have them either
        refused = job(1, "lease")
        assert refused["codes"] == ["RE117"]
        assert refused["text"] == (
            f"error[RE117]: no port is free in {ports[0]}-{ports[-1]} on {socket.gethostname()}\n"
            f"  = why: this job holds {held} of these 12 ports, and the others are in use\n"
            "  = help: release leases, or end what listens there (`ss -ltn`), "
            "or widen ROOST_PORT_RANGE on the node"
        )
    freed = ours(0, "release")
    assert theirs(0, "lease") == freed
    assert ours(0, "lease")["codes"] == ["RE117"]
    for port in {*mine} - {*freed}:  # the others stand
        assert not is_free(port)
        listen_and_close(port)
    theirs(0, "release")
    assert ours(1, "lease") == freed
    assert ours(0, "lease", 20_000)["codes"] == ["RC104"]


def test_a_killed_holders_ports_can_be_leased_again(
    narrow: tuple[str, range], two_jobs: tuple[Job, Job]
) -> None:
    ours, theirs = two_jobs
    # The jobs' own four ports part the other eight into five pieces at most: one of them has two.
    dead = ours(0, "lease", 2, True)
    kept = theirs(0, "lease_all")
    assert (len(dead), len(kept)) == (2, 6)
    assert ours(1, "lease")["codes"] == ["RE117"]
    os.kill(ours.pids[0], signal.SIGKILL)
    again = eventually(lambda: isinstance(got := ours(1, "lease", 2), list) and got, 5, "its ports are free")
    assert sorted(again) == sorted(dead)
    assert not any(map(is_free, kept))
    ours.restart(0)


def test_a_lease_nobody_waited_for_is_given_back(two_jobs: tuple[Job, Job]) -> None:
    ours, theirs = two_jobs
    for _ in range(3):
        late = ours(0, "lease", 5, False, 0)
        if isinstance(late, list):  # it came after all
            ours(0, "release")
        else:
            assert late["codes"] == ["RE112"]
    free: list[int] = []

    def all_free() -> bool:
        free.extend(theirs(0, "lease_all"))
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


def test_the_driver_leases_on_any_node_for_the_job(clusters: Callable[..., roost.Cluster]) -> None:
    made = clusters()
    with made.lease_ports(2, 4, consecutive=True) as lease:
        assert lease.host == made.node_infos[2].ip
        assert not any(map(is_free, lease.ports))
    assert all(map(is_free, lease.ports))
    lease = made.lease_ports(1)
    assert not is_free(lease.port)
    with pytest.raises(roost.ClusterError, match="node 3 does not exist"):
        made.lease_ports(3)
    made.shutdown()
    eventually(lambda: is_free(lease.port), 30, "a lease ends with its job")
    lease.release()  # no matter
    with pytest.raises(roost.ClusterError, match="was shut down"):
        made.lease_ports(0)


def test_a_driver_is_the_owner_of_what_it_leases(
    clusters: Callable[..., roost.Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = clusters(num_nodes=1)
    monkeypatch.setenv("ROOST_JOB", made.job)
    with roost.lease_ports() as lease:
        assert not is_free(lease.port)
    assert is_free(lease.port)


def test_a_process_outside_the_jobs_nodes_is_told_so(
    cluster: roost.Cluster, clusters: Callable[..., roost.Cluster]
) -> None:
    small = clusters(num_nodes=1)

    @ray.remote(num_cpus=0)
    def outside(job: str) -> str:
        os.environ["ROOST_JOB"] = job
        try:
            return str(roost.lease_ports())
        except roost.ClusterError as error:
            return str(error)
        finally:
            del os.environ["ROOST_JOB"]

    elsewhere = on_node(cluster.node_infos[2].node_id)
    said = ray.get(outside.options(scheduling_strategy=elsewhere).remote(small.job), timeout=60)
    ip = cluster.node_infos[2].ip
    assert said == (
        f"error[RE114]: this process runs on {ip}, which is not a node of job '{small.job}'\n"
        f"  = why: ports are held and devices are locked on the job's own nodes: {ip}\n"
        "  = help: ask for it in a worker, or for a node by its rank: cluster.lease_ports(node_rank)"
    )


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
