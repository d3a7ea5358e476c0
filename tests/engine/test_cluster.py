"""The live cluster: who is there, in which order, and who may join."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray
from crew import Reporter
from running import Program, eventually, new_job

import roost
from roost.engine.connection.actors import job_namespace
from roost.engine.job import managers

pytestmark = pytest.mark.ray
Run = Callable[..., Program]


@pytest.fixture(scope="module")
def group(cluster: roost.Cluster) -> Iterator[roost.WorkerGroup]:
    strategy = roost.FlexiblePlacementStrategy([[0], [4]])
    with Reporter.create_group().launch(cluster, placement_strategy=strategy, name="resident") as made:
        yield made


def node_of(handle: Any) -> str:
    return str(ray._private.state.actors(handle._actor_id.hex())["Address"]["NodeID"])


def test_what_is_there_is_found_in_order(cluster: Any) -> None:
    assert cluster.num_nodes == 3
    assert cluster.num_accelerators == 12
    assert [node.rank for node in cluster.nodes] == [0, 1, 2]
    assert [node.accelerators.count for node in cluster.nodes] == [4, 4, 4]
    assert {node.accelerators.type for node in cluster.nodes} == {"nvidia_gpu"}
    assert all(node.ip == "127.0.0.2" and node.hostname and node.cpus for node in cluster.nodes)
    # On one machine addresses and names are equal: what is left is the label of nodes roost started.
    labels = {node["NodeID"]: node["Labels"]["roost-index"] for node in ray.nodes()}
    assert [labels[cluster.node_infos[rank].node_id] for rank in range(3)] == ["0", "1", "2"]
    assert cluster.master_addr == cluster.master_ip == "127.0.0.2"
    assert 1024 < cluster.master_port < 65536


def test_three_managers_are_pinned_to_node_0(cluster: Any) -> None:
    for name in ("NodeManager", "WorkerManager", "CollectiveManager"):
        handle = ray.get_actor(name, namespace=job_namespace(cluster.job))
        eventually(
            lambda handle=handle: node_of(handle) == cluster.node_infos[0].node_id, 10, f"{name} on node 0"
        )


def test_the_managers_tell_what_they_know(cluster: Any, group: roost.WorkerGroup) -> None:
    nodes = roost.NodeManager.get_proxy(cluster.job)
    assert tuple(info.as_node(rank) for rank, info in enumerate(nodes.get_nodes())) == cluster.nodes
    assert [info.accelerators.count for info in nodes.get_nodes()] == [4, 4, 4]
    assert nodes.get_master_ip() == cluster.master_addr
    assert nodes.get_master_port() == cluster.master_port
    assert nodes.get_num_gpus_per_node() == 4
    workers = roost.WorkerManager.get_proxy(cluster.job)
    told = workers.list_groups()["resident"]
    assert told["placements"] == group.placements
    assert told["pids"] == group.pid().wait(timeout=60)
    assert told["state"] == "running"
    assert len(workers.get_workers("resident")) == 2
    meeting = roost.CollectiveManager.get_proxy(cluster.job).get("resident")
    assert meeting["world_size"] == 2
    assert meeting["master_addr"] == "127.0.0.2"
    assert meeting["master_port"] != cluster.master_port


def test_another_process_joins(cluster: roost.Cluster, group: roost.WorkerGroup, run: Run) -> None:
    seen = run("attaching", "", "resident").answer()
    assert seen["job"] == cluster.job
    assert seen["nodes"] == [str(node) for node in cluster.nodes]
    assert seen["master"] == [cluster.master_addr, cluster.master_port]
    assert seen["jobs"] == [cluster.job]
    assert seen["managers"] == [cluster.master_port, ["resident"], ["resident"]]
    assert seen["answers"] == [[0, "from outside"], [1, "from outside"]]
    assert seen["one"] == [[1, "just you"]]
    # It has left, and took nothing with it.
    assert group.echo(1).wait(timeout=60) == [(0, 1), (1, 1)]


def test_a_worker_joins_its_own_job(cluster: roost.Cluster, group: roost.WorkerGroup) -> None:
    assert group.attaches().wait(timeout=60) == [(cluster.job, 3, "127.0.0.2")] * 2
    answers = group.execute_on(1).calls_group("alone")
    with pytest.raises(roost.ClusterError, match="no group 'alone'"):
        answers.wait(timeout=60)


def test_an_unknown_group_or_job_lists_what_there_is(
    cluster: roost.Cluster, group: roost.WorkerGroup
) -> None:
    with pytest.raises(roost.ClusterError, match="did you mean 'resident'") as caught:
        roost.WorkerGroup.attach("residant", cluster)
    assert caught.value.codes == ("RE116",)
    for wrong in (None, ["resident"]):
        with pytest.raises(roost.ClusterError, match=r"known: .*resident") as caught:
            roost.WorkerGroup.attach(wrong, cluster)  # type: ignore[arg-type]
        assert caught.value.codes == ("RE116",)
    with pytest.raises(roost.ClusterError, match=f"running: {cluster.job}"):
        roost.Cluster(job="no-such-job")


@pytest.fixture(scope="module")
def other(connected: str) -> Iterator[roost.Cluster]:
    """A second job, which the second test that uses it ends."""
    with roost.Cluster(num_nodes=1, job=new_job("other")) as made:
        roost.Cluster._made.pop(made.job)
        yield made


def test_jobs_side_by_side(
    cluster: roost.Cluster, group: roost.WorkerGroup, other: roost.Cluster, run: Run
) -> None:
    assert sorted([cluster.job, other.job]) == roost.running_jobs()
    said = run("attaching", "", "resident").answer()
    assert said["codes"] == ["RE106"]
    assert "several jobs are running" in said["error"]
    assert cluster.job in said["error"]
    assert other.job in said["error"]
    joined = run("attaching", cluster.job, "resident").answer()
    assert joined["answers"][0] == [0, "from outside"]
    assert joined["own job"] == [[0, "by its name alone"], cluster.master_port]
    assert joined["jobs"] == sorted([cluster.job, other.job])
    # A worker knows which of them is its own.
    assert group.execute_on(0).attaches().wait(timeout=60) == [(cluster.job, 3, "127.0.0.2")]


def _refusal(proxy: Any) -> str:
    try:
        proxy.list_groups()
    except roost.ClusterError as error:
        return str(error)
    return ""


def test_a_manager_that_does_not_answer(
    cluster: roost.Cluster, group: roost.WorkerGroup, other: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall: waiting for managers with no deadline and no diagnosis."""
    proxy = roost.WorkerManager.get_proxy(other.job)
    assert proxy.list_groups() == {}
    handle = ray.get_actor("WorkerManager", namespace=job_namespace(other.job))
    pid = ray._private.state.actors(handle._actor_id.hex())["Pid"]
    monkeypatch.setattr(managers, "ANSWER_WITHIN", 0.3)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(roost.ClusterError) as caught:
            proxy.list_groups()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert caught.value.codes == ("RE112",)
    assert f"WorkerManager of job '{other.job}'" in str(caught.value)
    ray.kill(handle)
    monkeypatch.setattr(managers, "ANSWER_WITHIN", 20.0)
    assert "is gone" in eventually(lambda: _refusal(proxy), 20, "the killed manager is noticed")
    other.shutdown()
    eventually(lambda: roost.running_jobs() == [cluster.job], 30, "the other job is gone")
    assert group.echo(1).wait(timeout=60) == [(0, 1), (1, 1)]


def test_a_job_name_is_taken_or_not_a_name(cluster: roost.Cluster) -> None:
    with pytest.raises(roost.ClusterError, match="is already running") as caught:
        roost.Cluster(num_nodes=3, job=cluster.job)
    assert caught.value.codes == ("RE115",)
    for name in ("a/b", "x" * 65, "../up", "a b"):
        with pytest.raises(roost.ClusterError, match="is not a job name"):
            roost.Cluster(num_nodes=3, job=name)
    assert roost.NodeManager.get_proxy(cluster.job).get_master_port() == cluster.master_port


def test_a_process_has_one_cluster_of_a_job(cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roost.Cluster, "_made", {cluster.job: cluster})
    for asked in ({"num_nodes": 3}, {"num_nodes": 2}, {"cluster_cfg": {"num_nodes": 1}}):
        assert roost.Cluster(job=cluster.job, **asked) is cluster
    groups = [{"label": "a", "node_ranks": 0}]
    contradicting: list[tuple[dict[str, Any], str]] = [
        ({"num_nodes": 4}, "it has 3 nodes, not 4"),
        ({"num_nodes": 3, "address": "10.0.0.9:6379"}, "not at 10.0.0.9:6379"),
        ({"num_nodes": 3, "inline": True}, "it runs on Ray"),
        ({"num_nodes": 3, "whole_nodes": True}, "not whole nodes"),
        ({"cluster_cfg": {"num_nodes": 3, "node_groups": groups}}, "made without node groups"),
    ]
    for asked, says in contradicting:
        with pytest.raises(roost.ClusterError, match=says) as caught:
            roost.Cluster(job=cluster.job, **asked)
        assert caught.value.codes == ("RE103",)
        assert f"job {cluster.job!r}" in str(caught.value)


def test_an_inline_cluster_is_the_one_of_its_process_too() -> None:
    with roost.Cluster(num_nodes=2, inline="2x2", job="only-inline") as inline:
        assert roost.Cluster(num_nodes=2, job="only-inline") is inline
        with pytest.raises(roost.ClusterError, match="the shape 2x2, not 2x4"):
            roost.Cluster(num_nodes=2, inline="2x4", job="only-inline")


def test_the_one_cluster_needs_no_name(connected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roost.Cluster, "_made", {})
    monkeypatch.setattr(roost.Cluster, "_attached", {})
    assert callable(roost.Cluster.allocate)  # looking at it needs no cluster
    with pytest.raises(roost.ClusterError, match=r"Cluster\.allocate needs a cluster"):
        roost.Cluster.allocate(object, "nobody", 0, None)
    first = roost.Cluster(num_nodes=1)
    assert roost.Cluster(num_nodes=1) is first
    with roost.Cluster(num_nodes=1, job=f"{first.job}-second", inline="1x1") as second:
        assert second is not first
        with pytest.raises(roost.ClusterError, match="several clusters open") as caught:
            roost.Cluster(num_nodes=1)
        assert second.job in str(caught.value)
        assert first.job in str(caught.value)
    assert roost.Cluster(num_nodes=1) is first
    first.shutdown()
    again = roost.Cluster(num_nodes=1, job=first.job)  # its name can be used again at once
    assert again is not first
    again.shutdown()


def test_missing_nodes_are_refused_with_what_is_there_and_what_to_run(
    connected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pitfall: waiting for nodes with no deadline and no diagnosis."""
    job = new_job("hopeful")
    with pytest.raises(roost.ClusterError) as caught:
        roost.Cluster(num_nodes=5, job=job, timeout=0.5)
    text = str(caught.value)
    assert caught.value.codes == ("RE104",)
    assert "3 of 5 nodes are here after 0.5 s" in text
    hostname = ray.nodes()[0]["NodeManagerHostname"]
    assert text.count(f"{hostname} (127.0.0.2)") == 3
    assert re.search(rf"ray start --address={re.escape(connected)}`? on each of the 2 missing", text)
    assert "waiting for nodes, 3 of 5 are here" in capsys.readouterr().err
    assert job not in roost.running_jobs()
    assert not [
        actor for actor in ray.util.list_named_actors(all_namespaces=True) if job in actor["namespace"]
    ]


def test_fewer_nodes_than_there_are_and_node_groups_of_the_config_and_of_a_job(
    clusters: Callable[..., roost.Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    section = {
        "num_nodes": 2,
        "component_placement": {"actor": {"node_group": "tail", "placement": "0-3"}},
        "node_groups": [{"label": "tail", "node_ranks": 1}],
    }
    cluster = clusters(num_nodes=None, cluster_cfg=section)
    assert [node.rank for node in cluster.nodes] == [0, 1]
    actor = roost.ComponentPlacement({"cluster": section}, cluster).get_strategy("actor")
    places = [(p.cluster_node_rank, p.local_accelerator_rank) for p in actor.get_placement(cluster)]
    assert places == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert "RW203" in caplog.text
    assert "uses 2 of the cluster's 3 nodes" in caplog.text
    arms = {"type": "Arm", "configs": [{"node_rank": 1}]}
    settings = [{"node_ranks": 1, "env_vars": {"ARM_SPEED": "slow"}}]
    job = {
        "cluster": {
            "component_placement": {"env": {"node_group": "arms", "placement": "0:0"}},
            "node_groups": [{"label": "arms", "node_ranks": 1, "hardware": arms, "env_configs": settings}],
        }
    }
    strategy = roost.ComponentPlacement(job, cluster).get_strategy("env")
    group = Reporter.create_group("note").launch(cluster, strategy, name="arms")
    seen = group.environment("ARM_SPEED", "CUDA_VISIBLE_DEVICES").wait(timeout=60)
    assert [tuple(rank.values()) for rank in seen] == [("slow", "0,1,2,3")]
    assert not cluster._backend.reservation.held  # robots are not Ray's to give
    attached = roost.Cluster(job=cluster.job)
    assert attached.inventory.groups == cluster.inventory.groups
    assert attached.inventory.groups["tail"].node_ranks == (1,)
    attached.shutdown()


def test_an_address_where_nothing_is(run: Run) -> None:
    said = run("unreachable", "127.0.0.3:1").answer(within=90)
    assert said["codes"] == ["RE101"]
    assert "cannot connect to Ray at 127.0.0.3:1" in said["error"]


@pytest.mark.slow
def test_a_program_that_uses_ray_itself(run: Run) -> None:
    """Pitfall: attaching to whatever Ray is on the machine. Roost's own is ended, the program's is not."""
    job = new_job("connecting")
    program = run("connecting", job)
    seen = program.answer()
    assert program.end() == 0
    assert seen["no job"]["codes"] == ["RE106"]
    assert seen["after refusal"] is False
    assert seen["namespace of ours"] == "roost"
    assert seen["ours is shut down"] is False
    assert seen["unfitting"]["codes"] == ["RE103"]
    assert "ray.init(namespace='roost')" in seen["unfitting"]["text"]
    assert seen["unfitting stays"] is True
    for namespace in ("roost", None):
        assert seen[f"fitting {namespace}"] == 1
        assert seen[f"attached {namespace}"] == job
        assert seen[f"fitting {namespace} stays"] is True
    assert seen["other address"]["codes"] == ["RE103"]
    assert "not at 127.0.0.3:6379" in seen["other address"]["text"]
    assert seen["same address"] == {}
    assert seen["one of two ended"] is True
    assert seen["both ended"] is False
