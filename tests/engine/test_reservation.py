"""Accelerators are taken from Ray, exactly those of the plan, and given back in every case."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import ray
from contending import told
from crew import FailsToStart, Reporter
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from running import Program, eventually, new_job

import roost
from roost.engine.reservation import bundle_requests
from roost.engine.reservation.reservation_lock import reserving

pytestmark = pytest.mark.ray
Jobs = list[Any]


@pytest.fixture(scope="module")
def three_jobs(cluster: roost.Cluster) -> Iterator[Jobs]:
    more = [roost.Cluster(num_nodes=nodes, job=new_job("held")) for nodes in (3, 2)]
    yield [cluster, *more]
    for one in more:
        one.shutdown()


@pytest.fixture
def jobs(three_jobs: Jobs) -> Iterator[Jobs]:
    """Three jobs that hold nothing. Each test gives back what it took."""
    yield three_jobs
    for job in three_jobs:
        job._backend.reservation.release()
    for job in three_jobs:
        gone(job.job)


def groups_of(job: str) -> list[str]:
    """The placement groups of a job that still hold something."""
    return [
        group["name"]
        for group in placement_group_table().values()
        if group["name"].startswith(f"roost/{job}/") and group["state"] != "REMOVED"
    ]


def gone(job: str) -> None:
    eventually(lambda: not groups_of(job), 30, f"the reservation of {job} is given back")


def visible(group: roost.WorkerGroup) -> list[str | None]:
    return [
        seen["CUDA_VISIBLE_DEVICES"] for seen in group.environment("CUDA_VISIBLE_DEVICES").wait(timeout=60)
    ]


@pytest.fixture
def foreign() -> Iterator[list[Any]]:
    """Placement groups and actors that are not roost's; they end with the test."""
    made: list[Any] = []
    yield made
    for one in made:
        if isinstance(one, ray.actor.ActorHandle):
            ray.kill(one)
        else:
            remove_placement_group(one)


Contenders = dict[str, Any]


class Contender:
    """A job of this process that reserves in a thread what it is told to, as the program `contender` does."""

    def __init__(self, cluster: roost.Cluster) -> None:
        self.reservation = cluster._backend.reservation
        self.threads = ThreadPoolExecutor(1)
        self.answers: list[Future[Any]] = []

    def tell(self, line: str) -> None:
        self.answers.append(self.threads.submit(told, self.reservation, line))

    def answer(self) -> Any:
        return self.answers.pop(0).result(timeout=150)


@pytest.fixture
def contenders(jobs: Jobs, other_driver: tuple[str, Program]) -> Iterator[Contenders]:
    """Two jobs that hold nothing: one of this process, and one of another."""
    name, program = other_driver
    here = Contender(jobs[0])
    yield {jobs[0].job: here, name: program}
    here.threads.shutdown()
    program.tell("release")
    while program.answer() != "released":
        pass
    gone(name)


@pytest.fixture(scope="module")
def other_driver(address: str) -> Iterator[tuple[str, Program]]:
    """The driver of another job, in a process of its own, ready to reserve."""
    name = new_job("contender")
    program = Program("contender", name, env={"RAY_ADDRESS": address})
    assert program.answer() == "ready"
    yield name, program
    program.kill()


# -- exactly these ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "needs",
    [{0: [1, 3], 2: [1]}, {1: [0, 1, 2, 3]}],
)
def test_a_part_of_a_node_is_granted_by_number(jobs: Jobs, needs: dict[int, list[int]]) -> None:
    reservation = jobs[0]._backend.reservation
    reservation.ensure({node: set(devices) for node, devices in needs.items()})
    for node, devices in needs.items():
        assert reservation.device_names(node, devices) == [str(device) for device in devices]


def test_workers_see_what_was_granted(jobs: Jobs) -> None:
    strategy = roost.FlexiblePlacementStrategy([[1, 3], [5]])
    with Reporter.create_group().launch(jobs[0], strategy, name="exact") as group:
        assert visible(group) == ["1,3", "1"]


def test_the_reservation_grows_with_the_groups(jobs: Jobs) -> None:
    cluster = jobs[0]
    first = Reporter.create_group().launch(
        cluster, placement_strategy=roost.FlexiblePlacementStrategy([[1]]), name="first"
    )
    second = Reporter.create_group().launch(
        cluster, placement_strategy=roost.FlexiblePlacementStrategy([[0, 1, 3]]), name="second"
    )
    assert visible(first) == ["1"]
    assert visible(second) == ["0,1,3"]
    assert len(groups_of(cluster.job)) >= 2
    first.shutdown()
    second.shutdown()


def test_whole_nodes_on_request(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    greedy, other, _ = jobs
    monkeypatch.setattr(greedy._backend.reservation, "whole_nodes", True)
    greedy._backend.reservation.ensure({1: {2}})
    with pytest.raises(roost.ReservationError, match=f"job '{greedy.job}' holds accelerator 0"):
        other._backend.reservation.ensure({1: {0}})
    other._backend.reservation.ensure({2: {0}})


# -- two jobs ------------------------------------------------------------------------------------------------


def test_two_jobs_never_get_the_same_accelerator(jobs: Jobs) -> None:
    """Pitfall: workers reserve nothing from Ray, two jobs get the same GPU."""
    first, second, _ = jobs
    strategy = roost.FlexiblePlacementStrategy([[4, 5]])
    with Reporter.create_group().launch(first, placement_strategy=strategy, name="mine") as held:
        for _ in range(3):
            with pytest.raises(roost.ReservationError) as caught:
                Reporter.create_group().launch(second, placement_strategy=strategy, name="yours")
            assert f"job '{first.job}' holds accelerators 0-1" in str(caught.value)
            assert "node 1 (127.0.0.2): accelerators 0-1 cannot be reserved" in str(caught.value)
            assert caught.value.codes == ("RE107",)
        assert visible(held) == ["0,1"]
    assert not groups_of(second.job)
    first._backend.reservation.release()
    gone(first.job)
    with Reporter.create_group().launch(second, placement_strategy=strategy, name="yours") as again:
        assert visible(again) == ["0,1"]


def test_of_two_that_start_at_once_one_wins_and_is_named(contenders: Contenders) -> None:
    for _ in range(8):
        for program in contenders.values():
            program.tell("reserve 1:0,1,2,3")
        answers = {name: program.answer() for name, program in contenders.items()}
        winners = [name for name, said in answers.items() if "held" in said]
        assert len(winners) == 1, answers
        (loser,) = set(answers) - set(winners)
        assert f"job '{winners[0]}' holds accelerators 0-3" in answers[loser]["refused"]
        assert answers[winners[0]] == {"held": {"1": ["0", "1", "2", "3"]}}
        contenders[winners[0]].tell("release")
        assert contenders[winners[0]].answer() == "released"


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)])
def test_disjoint_jobs_share_a_node_in_any_order(jobs: Jobs, order: tuple[int, ...]) -> None:
    wanted = [{0}, {1}, {2, 3}]
    for index in order:
        jobs[index]._backend.reservation.ensure({1: wanted[index]})
    for job, devices in zip(jobs, wanted, strict=True):
        assert job._backend.reservation.device_names(1, sorted(devices)) == [
            str(device) for device in sorted(devices)
        ]


def test_disjoint_jobs_that_start_at_once_all_get_their_own(contenders: Contenders) -> None:
    first, second = contenders.values()
    for _ in range(3):
        first.tell("reserve 1:2,3 2:0,1,2,3")
        second.tell("reserve 1:0,1 0:1")
        assert first.answer() == {"held": {"1": ["2", "3"], "2": ["0", "1", "2", "3"]}}
        assert second.answer() == {"held": {"1": ["0", "1"], "0": ["1"]}}
        for program in (first, second):
            program.tell("release")
            assert program.answer() == "released"


def test_processes_of_one_job_share_what_it_holds(jobs: Jobs) -> None:
    owner = jobs[0]
    attached = roost.Cluster(job=owner.job)
    owner._backend.reservation.ensure({0: {0}})
    attached._backend.reservation.ensure({0: {0, 1}})
    owner._backend.reservation.ensure({0: {1, 2}})
    assert owner._backend.reservation.device_names(0, [0, 1, 2]) == ["0", "1", "2"]
    attached.shutdown()
    owner._backend.reservation.ensure({0: {1, 3}})
    assert owner._backend.reservation.device_names(0, [3]) == ["3"]


# -- the lock on reserving -------------------------------------------------------------------------------------


def test_no_process_is_started_for_the_lock(jobs: Jobs) -> None:
    cluster = jobs[0]
    with reserving(cluster.job, cluster.node_infos[0].node_id, time.monotonic() + 60):
        handle = ray.get_actor("roost:reserving", namespace="roost")
        assert ray._private.state.actors(handle._actor_id.hex())["State"] == "DEPENDENCIES_UNREADY"
        with pytest.raises(roost.ReservationError, match="another job on this cluster is reserving"):
            jobs[1]._backend.reservation.ensure({0: {0}}, timeout=0)
    jobs[1]._backend.reservation.ensure({0: {0}})


def test_the_lock_of_a_dead_process_is_free(jobs: Jobs, foreign: list[Any]) -> None:
    """Pitfall: a dead lock holder wedges everyone."""
    cluster = jobs[0]

    class Holder:
        def hold(self, job: str, node_id: str) -> None:
            self.held = reserving(job, node_id, time.monotonic() + 60)
            self.held.__enter__()

    holder = ray.remote(num_cpus=0)(Holder).remote()
    ray.get(holder.hold.remote(cluster.job, cluster.node_infos[0].node_id), timeout=60)
    with pytest.raises(roost.ReservationError, match="another job on this cluster is reserving"):
        cluster._backend.reservation.ensure({0: {0}}, timeout=0)
    ray.kill(holder)
    cluster._backend.reservation.ensure({0: {0}})


# -- others who hold -------------------------------------------------------------------------------------------


def test_a_foreign_placement_group_is_named(jobs: Jobs, foreign: list[Any]) -> None:
    cluster = jobs[0]
    node_id = cluster.node_infos[2].node_id
    held = placement_group(
        [{"GPU": 3}], bundle_label_selector=[{"ray.io/node-id": node_id}], name="somebody-else"
    )
    foreign.append(held)
    assert held.wait(30)
    with pytest.raises(roost.ReservationError) as caught:
        cluster._backend.reservation.ensure({2: {0, 1}})
    assert "2 needed, 1 of 4 free; placement group 'somebody-else' holds 3" in str(caught.value)
    cluster._backend.reservation.ensure({2: {3}})
    assert cluster._backend.reservation.device_names(2, [3]) == ["3"]


def test_a_foreign_actor_is_explained_and_what_is_left_can_be_had(
    jobs: Jobs, foreign: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall: server actors outside any reservation starve, and are awaited forever."""
    cluster = jobs[0]

    class Server:
        def ready(self) -> bool:
            return True

    node = NodeAffinitySchedulingStrategy(cluster.node_infos[2].node_id, soft=False)
    server = ray.remote(num_cpus=0, num_gpus=2)(Server).options(scheduling_strategy=node).remote()
    foreign.append(server)
    ray.get(server.ready.remote(), timeout=60)
    with monkeypatch.context() as hurried:
        hurried.setattr(bundle_requests, "PATIENCE", 1.0)
        with pytest.raises(roost.ReservationError, match="outside any placement group") as caught:
            cluster._backend.reservation.ensure({2: {0, 1, 2}})
    assert "node 2" in str(caught.value)
    assert not groups_of(cluster.job)
    cluster._backend.reservation.ensure({2: {2, 3}})
    assert cluster._backend.reservation.device_names(2, [2, 3]) == ["2", "3"]


def test_other_accelerators_than_planned_are_told_of(
    jobs: Jobs, foreign: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = jobs[0]
    held = placement_group(
        [{"GPU": 1}],
        bundle_label_selector=[{"ray.io/node-id": cluster.node_infos[2].node_id}],
        name="first-come",
    )
    foreign.append(held)
    assert held.wait(30)
    cluster._backend.reservation.ensure({2: {0}})
    assert cluster._backend.reservation.device_names(2, [0]) == ["1"]
    assert "RW202" in caplog.text
    assert "node 2: 1 instead of 0" in caplog.text


# -- what cannot be ----------------------------------------------------------------------------------------------


def test_an_impossible_reservation_is_refused_at_once(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pitfall: waiting for placement groups with no deadline and no diagnosis."""
    cluster = jobs[0]
    monkeypatch.delattr(bundle_requests, "placement_group")  # Ray is not asked
    with pytest.raises(roost.ReservationError, match="6 needed, 4 of 4 free"):
        cluster._backend.reservation.ensure({0: {0, 1}, 1: set(range(6))})
    assert not groups_of(cluster.job)


def test_every_lacking_node_is_reported_together(jobs: Jobs) -> None:
    first, second, _ = jobs
    first._backend.reservation.ensure({0: {0}, 1: {1, 3}})
    with pytest.raises(roost.ReservationError) as caught:
        second._backend.reservation.ensure({0: {0, 1}, 1: {3}, 2: {0}})
    assert caught.value.codes == ("RE107", "RE107")
    assert f"job '{first.job}' holds accelerator 0" in str(caught.value)
    assert f"job '{first.job}' holds accelerator 3" in str(caught.value)
    assert not groups_of(second.job)


# -- given back -----------------------------------------------------------------------------------------------


def test_given_back_when_an_exception_ends_the_job(jobs: Jobs) -> None:
    job = new_job()

    def fails() -> None:
        with roost.Cluster(num_nodes=1, job=job) as cluster:
            cluster._backend.reservation.ensure({0: {0, 1, 2, 3}})
            assert groups_of(job)
            FailsToStart.create_group(0, partial(OSError, "no")).launch(
                cluster, placement_strategy=roost.FlexiblePlacementStrategy([[0]]), name="failing"
            )

    with pytest.raises(roost.LaunchError, match="OSError: no"):
        fails()
    gone(job)
    jobs[0]._backend.reservation.ensure({0: {0, 1, 2, 3}})


def test_released_devices_are_free_for_the_next_at_once(jobs: Jobs) -> None:
    first, second, _ = jobs
    for _ in range(3):
        for job in (first, second):
            job._backend.reservation.ensure({0: {0, 1, 2, 3}})
            job._backend.reservation.release()
