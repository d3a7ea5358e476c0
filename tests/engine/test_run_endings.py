"""Runs that fail, end, skip components, or come from a file; each in a job of its own."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from crew import Reporter
from flow import Refuses, Sink, Source
from remains import held_by, is_free
from running import eventually

import roost
from roost.engine.connection import actors

pytestmark = pytest.mark.ray

JOB: dict[str, Any] = {
    "cluster": {
        "component_placement": {
            "actor": 0,
            "rollout": "4-7:0-1",
            "env": {"node_group": "node", "placement": 2},
        }
    }
}


def test_one_failure_takes_everything_down_and_a_shutdown_gives_everything_back(
    cluster: roost.Cluster,
) -> None:
    plan = roost.plan(JOB, cluster)
    workers = {"actor": Reporter, "rollout": Refuses.create_group(1), "env": Sink}
    with pytest.raises(roost.LaunchError) as caught:
        cluster.launch(plan, workers)
    finding = caught.value.findings[0]
    assert finding.what.startswith("rollout rank 1 (node 1")
    assert finding.what.endswith("could not start; all that was started with it was taken down")
    assert finding.why == "RuntimeError: no such model"
    eventually(lambda: held_by(cluster.job) == 0, 10, "the accelerators are given back")

    def workers_left() -> list[str]:
        named = ray.util.list_named_actors(all_namespaces=True)
        own = [entry["name"] for entry in named if entry["namespace"] == f"roost.{cluster.job}"]
        return [name for name in own if name.partition(":")[0] in workers]

    eventually(lambda: not workers_left(), 10, "no worker is left")
    # The same names and accelerators are free again.
    moved = roost.plan({"cluster": {"component_placement": {"actor": 1}}}, cluster)
    cluster._backend._became[plan.digest] = moved  # type: ignore[attr-defined]
    run = cluster.launch(plan, {**workers, "actor": Source, "rollout": Sink})
    assert run.plan.digest == plan.digest  # and not what an earlier run of it has become
    assert len(run["rollout"].how_many().wait(timeout=60)) == 2
    pids = [*run["actor"].pid().wait(timeout=60), *run["rollout"].pid().wait(timeout=60)]
    assert held_by(cluster.job) == 5
    run.shutdown()
    run.shutdown()
    eventually(lambda: held_by(cluster.job) == 0, 10, "the accelerators are given back")
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids), 20, "the processes end")
    with pytest.raises(roost.WorkerError, match="was shut down"):
        run["actor"].pid()


def test_a_launch_that_fails_before_its_processes_start_keeps_no_port(
    cluster: roost.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased: list[int] = []
    real = actors.patient_get

    def noted(refs: Any, *more: Any) -> Any:
        found = real(refs, *more)
        if isinstance(found, list) and len(found) == 2 and all(isinstance(one, list) for one in found):
            leased.extend(port for one in found for port in one)
        return found

    monkeypatch.setattr(actors, "patient_get", noted)
    plan = roost.plan({"cluster": {"component_placement": {"first": "0", "second": "4"}}}, cluster)
    with pytest.raises(roost.LaunchError, match="second: the worker class or its arguments cannot be sent"):
        cluster.launch(plan, {"first": Sink, "second": Reporter.create_group(threading.Lock())})
    assert len(leased) == 2
    eventually(lambda: all(map(is_free, leased)), 10, "the ports are released")


def test_skipped_components_hold_and_run_nothing(cluster: roost.Cluster) -> None:
    with cluster.launch(roost.plan(JOB, cluster), {"actor": Sink, "env": Sink}, skip=["rollout"]) as run:
        assert held_by(cluster.job) == 5
        assert list(run.groups) == ["actor", "env"]
        with pytest.raises(roost.WorkerError, match="component 'rollout' runs nothing in this run"):
            run["rollout"]
        assert {one.state for one in run.status().of("rollout")} == {"not started"}


def test_a_saved_plan_runs_as_it_was_reviewed(
    cluster: roost.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made on a laptop, from an inventory; its secret comes from the environment of the launch."""
    group = {
        "label": "trainers",
        "node_ranks": "0-1",
        "env_configs": [{"node_ranks": "0-1", "env_vars": {"HF_TOKEN": "t0p", "PLAIN": "seen"}}],
    }
    rules = {"actor": {"node_group": "trainers", "placement": "3-4"}}
    job = {"cluster": {"component_placement": rules, "node_groups": [group]}}
    roost.save_plan(roost.plan(job, "3x4"), tmp_path / "plan.json")
    saved = roost.load_plan(tmp_path / "plan.json")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(roost.ConfigurationError) as caught:
        cluster.launch(saved, {"actor": Reporter})
    assert caught.value.codes == ("RS103",)
    assert caught.value.findings[0].what == "the value of HF_TOKEN is missing, for node group 'trainers'"
    monkeypatch.setenv("HF_TOKEN", "from the environment")
    with cluster.launch(saved, {"actor": Reporter}) as run:
        names = ("HF_TOKEN", "PLAIN", "CUDA_VISIBLE_DEVICES", "RANK")
        assert run["actor"].environment(*names).wait(timeout=60) == [
            {
                "HF_TOKEN": "from the environment",
                "PLAIN": "seen",
                "CUDA_VISIBLE_DEVICES": device,
                "RANK": str(rank),
            }
            for rank, device in enumerate("30")
        ]
        assert [str(node) for node in run.plan.inventory.nodes] == [str(node) for node in cluster.nodes]
        with pytest.raises(ValueError, match="on purpose") as raised:
            run["actor"].raises(ValueError("on purpose"), 0).wait(timeout=60)
        assert "actor rank 0 (node 0 (127.0.0.2), accelerator 3) raised in raises" in str(raised.value)
        assert "argument" not in str(raised.value).partition("remote traceback")[0]
    job["cluster"]["node_groups"][0]["env_configs"][0]["env_vars"]["HF_TOKEN"] = "from the job"
    monkeypatch.delenv("HF_TOKEN")
    told = roost.Cluster(cluster_cfg=job["cluster"], num_nodes=3, inline="3x4")
    with told, told.launch(saved, {"actor": Reporter}) as run:
        assert run["actor"].environment("HF_TOKEN").wait(timeout=60)[0] == {"HF_TOKEN": "from the job"}


def test_status_sees_idle_busy_stopped_and_dead_processes(cluster: roost.Cluster, tmp_path: Path) -> None:
    plan = roost.plan({"cluster": {"component_placement": {"source": "0-2", "sink": "3"}}}, cluster)
    with cluster.launch(plan, {"source": Source, "sink": Sink}) as run:
        pids = run["source"].pid().wait(timeout=60)
        assert [one.state for one in run.status()] == ["idle"] * 4
        first = run.status()[0]
        assert (first.component, first.rank, first.pid, first.node, first.devices) == (
            "source",
            0,
            pids[0],
            0,
            (0,),
        )
        assert (first.generation, first.last_call, first.visible) == (0, "pid returned", "0")

        blocked = run["source"].execute_on(0).blocks(str(tmp_path / "gate"))
        psutil.Process(pids[1]).send_signal(signal.SIGSTOP)
        psutil.Process(pids[2]).kill()
        try:
            eventually(lambda: run.status()[2].state == "dead", 10, "the dead one is seen")
            eventually(lambda: run.status()[0].state == "busy", 10, "the busy one is seen")
            assert run.status()[0].calls_in_flight == ("blocks",)
            assert run.status()[1].state == "stopped"
            assert run.status()[2].last_call == "pid returned"  # what it did is known although it is dead
        finally:
            psutil.Process(pids[1]).send_signal(signal.SIGCONT)
            (tmp_path / "gate").touch()
        blocked.wait(timeout=60)
        run["source"].restart_ranks(2)
        assert [one.generation for one in run.status().of("source")] == [0, 0, 1]
        assert json.loads(json.dumps(run.status().to_dict()))["processes"][3]["component"] == "sink"


def test_accelerators_that_another_group_uses_by_now_are_kept(cluster: roost.Cluster) -> None:
    plan = roost.plan({"cluster": {"component_placement": {"first": "0-1"}}}, cluster)
    run = cluster.launch(plan, {"first": Sink})
    with Sink.create_group().launch(cluster, roost.PackedPlacementStrategy(1, 1), name="second") as second:
        run.shutdown()
        assert held_by(cluster.job) >= 1
        assert second.how_many().wait(timeout=60) == [0]
    assert held_by(cluster.job) == 0  # nothing uses them any more
