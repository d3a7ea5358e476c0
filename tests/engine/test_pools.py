"""Pools on a real Ray: every mode, the order under trouble, and what each role is given."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from crew import Reporter
from rank_actor import RankActor
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from remains import held_by
from running import eventually, new_job

import roost
from roost import Layout
from roost.engine.placement_groups import RoleGroup
from roost.engine.reservation import bundle_requests, measuring, reservation

pytestmark = pytest.mark.ray
Clusters = Callable[..., roost.Cluster]
ALL = [(node, device) for node in range(3) for device in range(4)]


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The resource of every probe that is started."""
    started: list[str] = []
    real = measuring._probe

    def counting(size: measuring.BundleSize) -> Any:
        started.append(size.resource)
        return real(size)

    monkeypatch.setattr(measuring, "_probe", counting)
    return started


@pytest.fixture(scope="module")
def second(connected: str) -> Iterator[roost.Cluster]:
    with roost.Cluster(num_nodes=2, job=new_job("second")) as made:
        yield made


@pytest.fixture
def other(second: roost.Cluster) -> Iterator[roost.Cluster]:
    """Another job, of two nodes, which holds nothing when a test begins."""
    yield second
    second._backend.reservation.release()
    second._backend.accelerators.launches.clear()  # type: ignore[attr-defined]


def places(positions: Any) -> list[tuple[int, int]]:
    return [(one.node, one.device) for one in positions]


A, R = 4, 6
MODES = [
    # flags, reserved, the actor's positions, the rollout's, what runs here
    ({"debug_train_only": True}, A, range(4), range(4), {"actor"}),
    ({"rollout_external": True, "debug_rollout_only": True}, A, range(4), range(4), {"actor"}),
    ({"rollout_external": True}, A, range(4), range(0), {"actor"}),
    ({"debug_rollout_only": True}, R, range(4), range(6), {"rollout"}),
    ({"colocate": True}, max(A, R), range(4), range(6), {"actor", "rollout"}),
    ({}, A + R, range(4), range(4, 10), {"actor", "rollout"}),
    ({"colocate": True, "rollout_num_gpus": 2}, A, range(4), range(2), {"actor", "rollout"}),
    ({"rollout_num_gpus": 0}, A, range(4), range(0), {"actor"}),
    ({"colocate": True, "use_critic": True}, R, range(4), range(6), {"actor", "critic", "rollout"}),
    ({"actor_num_nodes": 0, "rollout_num_gpus": 0}, 0, range(0), range(0), set()),
]


@pytest.mark.parametrize(("flags", "reserved", "actor", "rollout", "runs"), MODES)
def test_every_mode_holds_what_the_table_says(
    cluster: roost.Cluster, flags: dict[str, Any], reserved: int, actor: range, rollout: range, runs: set[str]
) -> None:
    args = argparse.Namespace(
        **{"actor_num_nodes": 2, "actor_num_gpus_per_node": 2, "rollout_num_gpus": R, **flags}
    )
    groups = roost.create_placement_groups(args, cluster)
    try:
        assert places(groups.pool.positions) == ALL[:reserved]
        trains, serves = groups["actor"], groups["rollout"]
        assert trains is not None
        assert serves is not None
        assert places(trains.positions) == [ALL[position] for position in actor]
        assert places(serves.positions) == [ALL[position] for position in rollout]
        assert set(groups.plan.components) == runs
        assert (groups["critic"] is None) == (not args.__dict__.get("use_critic", False))
        group, bundles, devices = serves
        assert devices == [ALL[position][1] for position in rollout]
        assert len(set(bundles)) == len(bundles) == len(devices)
        assert (group is None) == (not rollout)
        held = [one["bundles"].values() for one in _groups_of(cluster)]
        assert sum(bundle["GPU"] for some in held for bundle in some) == reserved
    finally:
        groups.release()
    assert not _groups_of(cluster)


def _groups_of(cluster: roost.Cluster) -> list[dict[str, Any]]:
    table = ray.util.placement_group_table().values()
    return [one for one in table if f"/{cluster.job}/" in one["name"] and one["state"] != "REMOVED"]


def test_one_probe_a_node(cluster: roost.Cluster, probes: list[str]) -> None:
    """Pitfall: one probe actor per GPU to learn the order."""
    with cluster.pool(Layout(actor_num_gpus_per_node=10, rollout_num_gpus=0)) as pool:
        assert places(pool.positions) == ALL[:10]
    assert probes == ["GPU"] * 3


def test_bundles_may_be_in_any_order(
    cluster: roost.Cluster, other: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    other._backend.reservation.ensure({0: {0, 1, 2}, 1: {0, 1, 2}})
    real = bundle_requests.placement_group

    def shuffled(bundles: list[Any], bundle_label_selector: list[Any], **more: Any) -> Any:
        order = [2, 0, 1]
        return real(
            [bundles[index] for index in order],
            bundle_label_selector=[bundle_label_selector[index] for index in order],
            **more,
        )

    monkeypatch.setattr(bundle_requests, "placement_group", shuffled)
    with cluster.pool(Layout(actor_num_gpus_per_node=3, rollout_num_gpus=0)) as pool:
        assert places(pool.positions) == [(0, 3), (1, 3), (2, 0)]
        assert [one.bundle[1] for one in pool.positions] == [1, 2, 0]
        with roost.TrainGroup(Reporter, pool) as trainers:  # and the processes are really there
            seen = trainers.workers.environment("CLUSTER_NODE_RANK", "CUDA_VISIBLE_DEVICES").wait(60)
        assert [tuple(map(int, one.values())) for one in seen] == places(pool.positions)


def test_what_another_job_holds_is_passed_over(cluster: roost.Cluster, other: roost.Cluster) -> None:
    other._backend.reservation.ensure({1: {0, 1}})
    with cluster.pool(Layout(actor_num_gpus_per_node=8, rollout_num_gpus=0)) as pool:
        assert places(pool.positions) == [*ALL[:4], (1, 2), (1, 3), (2, 0), (2, 1)]
        assert pool.plan.components["actor"].rule == "0-3,6-9"


@pytest.mark.parametrize("ray_is_late", [False, True])
def test_what_a_task_holds_outside_any_reservation_is_passed_over(
    cluster: roost.Cluster, foreign: list[Any], monkeypatch: pytest.MonkeyPatch, ray_is_late: bool
) -> None:
    """Ray's tables say how many such devices there are, perhaps a moment late; which ones is measured."""
    job = cluster

    class Server:
        def devices(self) -> list[int]:
            return [int(number) for number in ray.get_gpu_ids()]

    def free() -> list[int]:
        return list(reservation.free_by_ray(job._backend.live, range(3)).values())

    eventually(lambda: free() == [4, 4, 4], 30, "Ray has freed what earlier tests held")
    node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        job.node_infos[0].node_id, soft=False
    )
    server = ray.remote(num_cpus=0, num_gpus=2)(Server).options(scheduling_strategy=node).remote()
    foreign.append(server)
    theirs = ray.get(server.devices.remote(), timeout=60)
    eventually(lambda: free() == [2, 4, 4], 30, "Ray's view has the server")
    if ray_is_late:
        older = iter([{0: 4, 1: 4, 2: 4}])
        now = reservation.free_by_ray
        monkeypatch.setattr(reservation, "free_by_ray", lambda *asked: next(older, None) or now(*asked))
        monkeypatch.setattr(bundle_requests, "PATIENCE", 0.0)
    with job.pool(Layout(actor_num_gpus_per_node=4, rollout_num_gpus=0)) as pool:
        ours = [(0, device) for device in range(4) if device not in theirs]
        assert places(pool.positions) == [*ours, (1, 0), (1, 1)]


@pytest.fixture
def foreign() -> Iterator[list[Any]]:
    actors: list[Any] = []
    yield actors
    for actor in actors:
        ray.kill(actor)


def test_a_named_accelerator_that_something_else_holds_is_refused(
    cluster: roost.Cluster, foreign: list[Any]
) -> None:
    """Another one is not a pool's business: what it names, it gets."""
    job = cluster

    theirs = _device_of_a_server(job, foreign)
    with pytest.raises(roost.ReservationError, match="not the planned ones"):
        job.pool(Layout(actor_num_gpus_per_node=1, rollout_num_gpus=0, accelerators=theirs))
    assert not _groups_of(job)


def _device_of_a_server(job: roost.Cluster, foreign: list[Any]) -> str:
    """Starts an actor outside roost on node 0, and says which accelerator Ray gave it."""

    class Server:
        def device(self) -> str:
            return str(ray.get_gpu_ids()[0])

    node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        job.node_infos[0].node_id, soft=False
    )
    foreign.append(ray.remote(num_cpus=0, num_gpus=1)(Server).options(scheduling_strategy=node).remote())
    return str(ray.get(foreign[-1].device.remote(), timeout=60))


def test_numbers_that_stand_for_another_accelerator_are_not_given_out_twice(
    other: roost.Cluster, foreign: list[Any]
) -> None:
    theirs = _device_of_a_server(other, foreign)
    strategy = roost.FlexiblePlacementStrategy([[int(theirs)]])
    with Reporter.create_group().launch(other, strategy, name="first") as first:
        ray.kill(foreign.pop())
        pool = other.pool(Layout(actor_num_gpus_per_node=3, rollout_num_gpus=0))
        names = [one.name for one in pool.positions]
        seen = first.environment("CUDA_VISIBLE_DEVICES").wait(60)[0]["CUDA_VISIBLE_DEVICES"]
        assert seen != theirs
        assert sorted([seen, *names]) == ["0", "1", "2", "3"]
        assert len({(0, int(theirs)), *places(pool.positions)}) == 4
        pool.release()


def test_named_accelerators_with_gaps_are_one_reservation(cluster: roost.Cluster) -> None:
    layout = Layout(actor_num_gpus_per_node=4, rollout_num_gpus=0, accelerators="1,3,5,7")
    groups = roost.create_placement_groups(layout, cluster)
    try:
        trains = groups["actor"]
        assert trains is not None
        assert places(trains.positions) == [(0, 1), (0, 3), (1, 1), (1, 3)]
        _, bundles, devices = trains
        assert (sorted(bundles), devices) == ([0, 1, 2, 3], [1, 3, 1, 3])
        assert len(_groups_of(cluster)) == 1
    finally:
        groups.release()


def test_named_accelerators_can_be_had_again_at_once(cluster: roost.Cluster) -> None:
    layout = Layout(actor_num_gpus_per_node=2, rollout_num_gpus=0, accelerators="1-2")
    for _ in range(5):
        with cluster.pool(layout) as pool:
            assert [one.name for one in pool.positions] == ["1", "2"]


def test_a_pool_over_what_a_group_holds_leaves_the_group_alone(other: roost.Cluster) -> None:
    with Reporter.create_group().launch(other, roost.PackedPlacementStrategy(0, 1), name="before") as group:
        layout = Layout(actor_num_gpus_per_node=3, rollout_num_gpus=0, accelerators="0-2")
        with other.pool(layout) as pool:
            with pytest.raises(roost.ReservationError, match="2 accelerators are in another pool"):
                other.pool(Layout(actor_num_gpus_per_node=2, rollout_num_gpus=0, accelerators="1-2"))
            assert len(pool) == 3
        assert group.echo(1).wait(60) == [(0, 1), (1, 1)]


def test_one_is_not_counted_as_several() -> None:
    role = RoleGroup.__new__(RoleGroup)
    role.positions = [SimpleNamespace(node=0)]
    assert repr(role) == "<1 position on nodes [0]>"
    rollout = roost.RolloutManager.__new__(roost.RolloutManager)
    rollout.groups = {"rollout": [object()]}  # type: ignore[dict-item]
    assert repr(rollout) == "<rollout of 1 engine in 1 group>"


def test_a_released_pool_ends_what_runs_on_it_and_is_of_no_more_use(cluster: roost.Cluster) -> None:
    pool = cluster.pool(Layout(actor_num_gpus_per_node=2, rollout_num_gpus=0))
    trainers = roost.TrainGroup(Reporter, pool, name="ended")
    pool.release()
    pool.release()
    assert "released" in repr(pool)
    with pytest.raises(roost.WorkerError, match="was shut down"):
        trainers.workers.echo(1)
    for use in (
        lambda: pool.positions,
        lambda: pool.role("actor"),
        lambda: roost.TrainGroup(Reporter, pool),
        trainers.recreate,
    ):
        with pytest.raises(roost.ClusterError, match="the pool was released"):
            use()
    assert not _groups_of(cluster)


def test_an_attached_process_knows_what_was_given_back(other: roost.Cluster) -> None:
    pool = other.pool(Layout(actor_num_gpus_per_node=2, rollout_num_gpus=0))
    with roost.Cluster(job=other.job) as attached:
        strategy = roost.PackedPlacementStrategy(0, 1)
        with Reporter.create_group().launch(attached, strategy, name="one") as group:
            assert group.echo(1).wait(60) == [(0, 1), (1, 1)]
        pool.release()
        with Reporter.create_group().launch(attached, strategy, name="two", timeout=60) as group:
            assert group.echo(2).wait(60) == [(0, 2), (1, 2)]
        attached._backend.reservation.release()


def test_whole_nodes_are_held_as_a_whole(
    cluster: Any, other: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = cluster
    monkeypatch.setattr(job._backend.reservation, "whole_nodes", True)
    other._backend.reservation.ensure({0: {3}})
    with job.pool(Layout(actor_num_gpus_per_node=5, rollout_num_gpus=0)) as pool:
        assert places(pool.positions) == [*ALL[4:8], (2, 0)]
        assert sum(bundle["GPU"] for one in _groups_of(job) for bundle in one["bundles"].values()) == 8
    job._backend.reservation.release()  # a job with whole nodes keeps them


@pytest.mark.parametrize("wrong", [None, 5, [], b"x", {"actor_num_nodes": "many"}, {"cluster": {}}])
def test_what_is_no_layout_is_refused(cluster: roost.Cluster, wrong: Any) -> None:
    with pytest.raises(roost.ConfigurationError):
        cluster.pool(wrong)


def test_wrong_arguments_have_words(cluster: roost.Cluster) -> None:
    layout = Layout(actor_num_gpus_per_node=1, rollout_num_gpus=0)
    with pytest.raises(roost.RoostError, match="a timeout is a number of seconds"):
        cluster.pool(layout, timeout="x")
    with pytest.raises(roost.ClusterError, match="'x' is not a cluster"):
        roost.create_placement_groups(layout, "x")
    with cluster.pool(layout.as_job()["cluster"]) as pool:  # a `cluster` section by itself
        for wrong in (None, [], 5):
            with pytest.raises(roost.PlacementError, match="unknown role"):
                pool.role(wrong)
            with pytest.raises(roost.PlacementError, match="nothing runs as"):
                pool.component(wrong)
    with (
        roost.Cluster(num_nodes=1, inline="1x2", job="inline") as inline,
        pytest.raises(roost.ClusterError, match="an inline cluster has no placement groups"),
    ):
        roost.create_placement_groups(layout, inline)


def test_two_pools_of_a_job_are_disjoint(cluster: roost.Cluster) -> None:
    layout = Layout(actor_num_gpus_per_node=3, rollout_num_gpus=0)
    with cluster.pool(layout) as first, cluster.pool(layout) as second:
        assert places(first.positions) == ALL[:3]
        assert places(second.positions) == ALL[3:6]


def test_too_few_free_says_who_holds_them_and_keeps_nothing(
    cluster: roost.Cluster, other: roost.Cluster
) -> None:
    other._backend.reservation.ensure({0: {0, 1, 2, 3}, 1: {0}})
    with pytest.raises(roost.ReservationError) as caught:
        cluster.pool(Layout(actor_num_gpus_per_node=8, rollout_num_gpus=0))
    text = str(caught.value)
    assert "8 accelerators cannot be reserved, 7 are free" in text
    assert f"0 of 4 free, job '{other.job}' holds 4" in text
    assert f"3 of 4 free, job '{other.job}' holds 1" in text
    assert not _groups_of(cluster)


def test_more_than_the_cluster_has_is_a_matter_of_the_plan(cluster: roost.Cluster) -> None:
    with pytest.raises(roost.RoostError, match=r"needs 13 accelerators") as caught:
        cluster.pool(Layout(actor_num_gpus_per_node=8, rollout_num_gpus=5))
    assert caught.value.codes == ("RP112",)
    assert not _groups_of(cluster)


def test_engines_that_do_not_fit_what_is_free_are_refused_and_nothing_is_kept(
    cluster: roost.Cluster, other: roost.Cluster
) -> None:
    other._backend.reservation.ensure({0: {0}})
    layout = Layout(actor_num_nodes=0, rollout_num_gpus=8, rollout_num_gpus_per_engine=4)
    with pytest.raises(roost.RoostError, match="straddle nodes 0 and 1") as caught:
        cluster.pool(layout)
    assert caught.value.codes == ("RP110",)
    assert "the first that are free are accelerators 1-8" in str(caught.value)
    assert not _groups_of(cluster)


def test_a_layout_may_name_its_accelerators(cluster: roost.Cluster) -> None:
    layout = Layout(actor_num_gpus_per_node=4, rollout_num_gpus=0, accelerators="2-3,9-11")
    with cluster.pool(layout) as pool:
        assert places(pool.positions) == [(0, 2), (0, 3), (2, 1), (2, 2)]


def test_a_pool_from_a_job_with_node_groups(clusters: Clusters) -> None:
    job = {
        "cluster": {
            "num_nodes": 3,
            "node_groups": [{"label": "big", "node_ranks": "1-2"}],
            "layout": {
                "node_group": "big",
                "actor_num_gpus_per_node": 4,
                "rollout_num_gpus": 4,
                "rollout_num_gpus_per_engine": 2,
            },
            "component_placement": {"env": 0},
            "shares": {"env": 0.5},
        }
    }
    cluster = clusters(num_nodes=None, cluster_cfg=job)
    with cluster.pool(job) as pool:
        assert places(pool.positions) == ALL[4:12]
        assert pool.plan.components["rollout"].rule == "4-7:0-1"
    with pytest.raises(roost.ConfigurationError, match="the job has no layout"):
        cluster.pool({"cluster": {"component_placement": {"env": 0}}})


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(["actor"] * 8, id="actor", marks=pytest.mark.slow),
        pytest.param(["rollout"] * 8, id="rollout", marks=pytest.mark.slow),
        pytest.param(["actor"] * 4 + ["rollout"] * 4, id="one on each node"),
    ],
)
def test_each_rank_of_the_loop_sits_on_its_position(cluster: roost.Cluster, first: list[str]) -> None:
    """Actors that ask for 0.8 and 0.2 in the bundle of a rank, in both orders; nothing waits for the other."""
    flags = {"actor_num_nodes": 2, "actor_num_gpus_per_node": 4, "rollout_num_gpus": 8, "colocate": True}
    groups = roost.create_placement_groups(argparse.Namespace(**flags), cluster)
    shares = {"actor": 0.8, "rollout": 0.2}
    ids = [info.node_id for info in cluster.node_infos]
    started = []
    try:
        for is_first in (True, False):
            for rank in range(8):
                role = next(one for one in shares if (one == first[rank]) == is_first)
                group, bundles, devices = groups[role]  # type: ignore[misc]
                where = PlacementGroupSchedulingStrategy(
                    group,
                    placement_group_bundle_index=bundles[rank],
                    placement_group_capture_child_tasks=True,
                )
                actor = ray.remote(num_gpus=shares[role], num_cpus=shares[role])(RankActor)
                started.append((actor.options(scheduling_strategy=where).remote(), ALL[rank], devices[rank]))
            # The second one of each rank is started when the first ones run.
            found = ray.get([one.where.remote() for one, _, _ in started], timeout=120)
        for (node_id, gpus, visible), (_, (node, device), measured) in zip(found, started, strict=True):
            assert (node_id, visible, measured) == (ids[node], str(device), device)
            assert [int(gpu) for gpu in gpus] == [device]
        assert ray.get(started[-1][0].child_is_in_the_group.remote(), timeout=60)
    finally:
        for one, _, _ in started:
            ray.kill(one)
        groups.release()


def test_the_order_is_measured_by_one_process_a_node(
    cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall: one probe actor per GPU to learn the order."""
    seen: list[measuring.MeasuredBundle] = []
    real = measuring.measure

    def noted(nodes: Any) -> Any:
        found = real(nodes)
        seen.extend(found.values())
        return found

    monkeypatch.setattr(reservation, "measure", noted)
    groups = roost.create_placement_groups({"actor_num_gpus_per_node": 12, "rollout_num_gpus": 0}, cluster)
    groups.release()
    assert len(seen) == 12
    assert len({(one.node_id, one.pid) for one in seen}) == 3


def test_a_node_with_too_few_cpus_is_named(cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    live = cluster._backend.live
    short = replace(live[1], facts=replace(live[1].facts, cpus=3))
    monkeypatch.setattr(cluster._backend.reservation, "live", [live[0], short, live[2]])
    with pytest.raises(roost.ReservationError, match="4 accelerators with a CPU each") as caught:
        roost.create_placement_groups({"actor_num_gpus_per_node": 12, "rollout_num_gpus": 0}, cluster)
    assert "Ray counts 3 CPUs" in str(caught.value)
    assert not _groups_of(cluster)


def test_cpus_that_others_hold_are_named(cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_requests, "PATIENCE", 0.0)
    node = cluster._backend.live[1]  # type: ignore[attr-defined]
    cpus = node.facts.cpus or 0
    group = ray.util.placement_group(
        [{"CPU": cpus - 2}], bundle_label_selector=[{"ray.io/node-id": node.node_id}], name="greedy"
    )
    try:
        assert group.wait(60)
        with pytest.raises(roost.ReservationError, match="3 accelerators with a CPU each") as caught:
            roost.create_placement_groups(
                Layout(actor_num_gpus_per_node=3, rollout_num_gpus=0, accelerators="4-6"), cluster
            )
        assert f"2 of {cpus} CPUs are free there: placement group 'greedy' holds {cpus - 2}" in str(
            caught.value
        )
        assert not _groups_of(cluster)
    finally:
        ray.util.remove_placement_group(group)


def test_placement_groups_are_not_made_of_what_a_group_holds(other: roost.Cluster) -> None:
    """Its accelerators are one bundle without a CPU, so a loop over ranks would not work."""
    layout = Layout(actor_num_gpus_per_node=3, rollout_num_gpus=0, accelerators="0-2")
    with Reporter.create_group().launch(other, roost.PackedPlacementStrategy(0, 1), name="before") as group:
        with pytest.raises(
            roost.ReservationError, match="2 accelerators are held for worker groups"
        ) as caught:
            roost.create_placement_groups(layout, other)
        assert "before those worker groups, or name other accelerators" in str(caught.value)
        assert group.echo(1).wait(60) == [(0, 1), (1, 1)]


def test_a_pool_on_what_a_group_holds_ends_its_own_groups_and_leaves_the_other(other: roost.Cluster) -> None:
    layout = Layout(actor_num_gpus_per_node=2, rollout_num_gpus=0, accelerators="0-1")
    group = Reporter.create_group().launch(other, roost.PackedPlacementStrategy(0, 1), name="before")
    pool = other.pool(layout)
    trainers = pool.launch(Reporter.create_group(), "actor")
    pool.release()
    assert not trainers.is_running
    assert group.echo(1).wait(60) == [(0, 1), (1, 1)]
    pool = other.pool(layout)
    group.shutdown()
    assert held_by(other.job) == 2  # the pool's by now
    pool.release()
    assert held_by(other.job) == 0


def test_options_for_actors_of_the_programs_own(cluster: roost.Cluster) -> None:
    args = {"actor_num_gpus_per_node": 6, "rollout_num_gpus": 4, "colocate": True}
    groups = roost.create_placement_groups(args, cluster)
    trains, serves = groups["actor"], groups["rollout"]
    assert trains is not None
    assert serves is not None
    actors = []
    try:
        assert trains.shares == [0.8] * 4 + [1.0] * 2
        assert serves.shares == [0.2] * 4
        actors = [ray.remote(RankActor).options(**trains.options(index)).remote() for index in (1, 5)]
        actors.append(ray.remote(RankActor).options(**serves.options(0, 4)).remote())
        found = ray.get([actor.where.remote() for actor in actors], timeout=60)
        ids = [cluster.node_infos[rank].node_id for rank in range(3)]
        assert [(node, seen) for node, _, seen in found] == [
            (ids[0], "1"),
            (ids[1], "1"),
            (ids[0], "0,1,2,3"),
        ]
        with pytest.raises(roost.PlacementError, match="nodes 0 and 1"):
            trains.options(2, 4)
        for wrong in [(6,), (0, 0), (-1,), ("a",), (0, None), (True,)]:
            with pytest.raises(roost.PlacementError, match="there are 6"):
                trains.options(*wrong)
    finally:
        for actor in actors:
            ray.kill(actor)
        groups.release()
    with pytest.raises(roost.ClusterError, match="the pool was released"):
        trains.options(0)


def test_train_groups_take_such_a_group_too(cluster: roost.Cluster) -> None:
    groups = roost.create_placement_groups({"actor_num_gpus_per_node": 2, "rollout_num_gpus": 0}, cluster)
    try:
        with roost.TrainGroup(Reporter, groups["actor"]) as trainers:  # type: ignore[arg-type]
            seen = trainers.workers.environment("CUDA_VISIBLE_DEVICES").wait(60)
            assert [one["CUDA_VISIBLE_DEVICES"] for one in seen] == ["0", "1"]
            pids = ray.get([one.pid.remote() for one in trainers.handles], timeout=60)
            assert pids == trainers.workers.pid().wait(60)
            assert trainers._actor_handlers == trainers.handles
            assert [one.rank for one in trainers.workers.worker_info_list] == [0, 1]
    finally:
        groups.release()


def test_without_a_cluster_one_is_made_over_all_nodes(
    connected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roost.Cluster, "_made", {})
    monkeypatch.setattr(roost.Cluster, "_attached", {})
    groups = roost.create_placement_groups({"actor_num_gpus_per_node": 12, "rollout_num_gpus": 0})
    try:
        assert places(groups.pool.positions) == ALL
        assert groups.cluster.num_nodes == 3
    finally:
        groups.release()
    with pytest.raises(roost.ClusterError, match="shut down"):
        groups.cluster.pool(Layout(rollout_num_gpus=0))
    eventually(lambda: groups.cluster.job not in roost.running_jobs(), 30, "its job is gone")


def test_five_components_on_one_accelerator(other: roost.Cluster) -> None:
    """Pitfall: shares are constants, so a fourth colocated component cannot start."""
    names = ["actor", "rollout", "reward", "critic", "env"]
    job = {"cluster": {"component_placement": {",".join(names): 0}}}
    with other.launch(roost.plan(job, other), dict.fromkeys(names, Reporter)) as run:
        charged = [run[name].own_share().wait(60)[0] for name in names]
        assert charged == [0.2] * 5
        assert sum(charged) <= 1
        manager = roost.WorkerManager.get_proxy(other.job)
        assert {name: one["shares"] for name, one in manager.list_groups().items()} == {
            name: [0.2] for name in names
        }
