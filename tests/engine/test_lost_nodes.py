"""Nodes that go: their ranks are named, and moved where the policy says so. Each test has a Ray of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from frail import Frail, HeldBack
from remains import held_by
from running import eventually, new_job

import roost
from roost.testing.soundness import assert_ended

pytestmark = [pytest.mark.ray, pytest.mark.slow]

JOB: dict[str, Any] = {
    "cluster": {"component_placement": {"moves": "0-3", "led": "2", "stays": "2"}},
    "supervise": {
        "moves,led": {"policy": "relocate", "spare_nodes": 2},
        "stays": {"policy": "one_for_one"},
    },
}


@pytest.fixture
def cluster() -> Iterator[roost.Cluster]:
    with (
        roost.embedded("3x2") as address,
        roost.Cluster(num_nodes=3, address=address, job=new_job("lost")) as made,
    ):
        yield made


def test_only_the_ranks_of_a_killed_node_move(cluster: roost.Cluster) -> None:
    plan = roost.plan(JOB, cluster)
    run = cluster.launch(plan, {"moves": Frail, "led": Frail, "stays": Frail})
    group = run["moves"]
    ports = [run[name].environment().wait(timeout=60)[0]["MASTER_PORT"] for name in ("moves", "led")]
    before, raylets = group.pid().wait(timeout=60), group.raylet().wait(timeout=60)
    psutil.Process(raylets[2]).send_signal(signal.SIGKILL)
    eventually(lambda: any(event.action == "moved" for event in run.events), 60, "the ranks are moved")
    lost = [event for event in run.events if event.cause == "node lost" and event.rank is not None]
    assert {(event.component, event.rank, event.node) for event in lost} >= {
        ("moves", 2, 1),
        ("moves", 3, 1),
        ("stays", 0, 1),
    }
    group.wait_recovered(120)
    assert_ended(before[2:], within=20)  # none runs beside the one that moved
    eventually(lambda: not psutil.pid_exists(raylets[2]), 20, "the raylet is collected")
    assert group.story().wait(timeout=60) == [(0, 0, []), (1, 0, []), (2, 1, [1]), (3, 1, [1])]
    assert group.pid().wait(timeout=60)[:2] == before[:2]
    environments = group.environment().wait(timeout=60)
    assert [one["CLUSTER_NODE_RANK"] for one in environments] == ["0", "0", "2", "2"]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in environments] == ["0", "1", "0", "1"]
    assert [one["MASTER_PORT"] for one in environments] == [ports[0]] * 4
    run["led"].wait_recovered(120)  # its rank 0 has moved, and with it the place to meet
    (port,) = [one["MASTER_PORT"] for one in run["led"].environment().wait(timeout=60)]
    assert port != ports[1]
    met = roost.CollectiveManager.get_proxy(cluster.job).get
    eventually(lambda: met("led")["master_port"] == int(port), 20, "others find it")
    moved = [event for event in run.events if event.action == "moved"]
    assert sorted((event.component, event.rank, event.node) for event in moved) == [
        ("led", 0, 2),
        ("moves", 2, 2),
        ("moves", 3, 2),
    ]
    assert {event.detail for event in moved} == {f"from node 1; new plan {run.plan.short_digest}"}
    assert [place.cluster_node_rank for place in run.plan.components["moves"].members] == [0, 0, 2, 2]
    assert [place.cluster_node_rank for place in group.placements] == [0, 0, 2, 2]
    assert [one.node for one in run.status().of("moves")] == [0, 0, 2, 2]
    with pytest.raises(roost.WorkerDied, match="its node is gone, and its policy moves nothing"):
        run["stays"].pid()
    assert not [event for event in run.events if event.component == "stays" and event.action == "restarted"]
    psutil.Process(group.raylet().wait(timeout=60)[2]).send_signal(signal.SIGKILL)
    eventually(lambda: run.events[-1].action == "given up", 60, "there is no second spare node")
    assert "no spare node of its shape is free" in run.events[-1].detail
    with pytest.raises(roost.WorkerDied, match="given up"):
        group.wait_recovered(60)
    run.shutdown()
    run.shutdown()


def test_a_node_that_is_lost_while_its_rank_restarts(cluster: roost.Cluster, tmp_path: Path) -> None:
    """The restart can come to no end there, and is not waited for."""
    job = {
        "cluster": {"component_placement": {"moves": "0-2"}},
        "supervise": {"moves": JOB["supervise"]["moves,led"]},
    }
    run = cluster.launch(roost.plan(job, cluster), {"moves": HeldBack.create_group(str(tmp_path))})
    group, other = run["moves"], roost.Cluster(job=cluster.job)
    attached = roost.WorkerGroup.attach("moves", other)
    pids, raylets = group.pid().wait(timeout=60), group.raylet().wait(timeout=60)
    psutil.Process(pids[2]).send_signal(signal.SIGKILL)
    eventually(lambda: (tmp_path / "held back").exists(), 60, "its restart has begun")
    psutil.Process(raylets[2]).send_signal(signal.SIGKILL)
    attached.wait_recovered(120)
    assert attached.story().wait(timeout=60) == [(0, 0, []), (1, 0, []), (2, 2, [2])]
    other.shutdown()
    group.wait_recovered(120)
    assert [event.action for event in run.events].count("moved") == 1
    assert group.story().wait(timeout=60) == [(0, 0, []), (1, 0, []), (2, 2, [2])]
    assert [event.cause for event in run.events if event.action == "restarting"] == ["crash", "node lost"]
    run.shutdown()
    assert held_by(cluster.job) == 0  # the accelerators it moved to as well
