"""A run: the whole job from its plan, in one step."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from crew import Reporter
from flow import Refuses, Sink, Source
from remains import assert_gone, remains
from running import eventually, new_job

import roost

pytestmark = pytest.mark.ray

JOB = {
    "cluster": {
        "component_placement": {
            "actor": "0-3",
            "rollout": "4-7:0-1",
            "env": {"node_group": "node", "placement": "0-2"},
        }
    }
}


def held_by(job: str) -> float:
    """The accelerators a job has reserved."""
    from ray.util.placement_group import placement_group_table

    return sum(
        bundle.get("GPU", 0)
        for group in placement_group_table().values()
        if group["name"].startswith(f"roost/{job}/") and group["state"] == "CREATED"
        for bundle in group["bundles"].values()
    )


@pytest.fixture(scope="module")
def plan(cluster: roost.Cluster) -> roost.Plan:
    return roost.plan(JOB, cluster)


@pytest.fixture(scope="module")
def run(cluster: roost.Cluster, plan: roost.Plan) -> Iterator[roost.Run]:
    workers = {"actor": Reporter, "rollout": Reporter.create_group("told"), "env": Sink}
    with cluster.launch(plan, workers) as launched:
        yield launched


def test_every_process_is_where_the_plan_has_it(run: roost.Run, plan: roost.Plan) -> None:
    assert list(run.groups) == ["actor", "rollout", "env"]
    for name in ("actor", "rollout"):
        told = run[name].identity().wait(timeout=60)
        assert [one["placement"] for one in told] == plan.components[name].placements
        assert [one["group"] for one in told] == [name] * len(told)
    assert {one["note"] for one in run["rollout"].identity().wait(timeout=60)} == {"told"}
    assert run["actor"].own_share().wait(timeout=60) == [1.0] * 4


def test_everything_is_reserved_together(cluster: roost.Cluster, run: roost.Run) -> None:
    assert held_by(cluster.job) == 8


def test_the_plan_is_kept_with_the_job(
    cluster: roost.Cluster, run: roost.Run, plan: roost.Plan, connected: str
) -> None:
    attached = roost.Cluster(job=cluster.job)
    try:
        assert [kept.digest for kept in attached.plans] == [plan.digest]
        assert attached.plans[0] == plan
    finally:
        attached.shutdown()
    assert run.plan is not None
    assert run.plan.digest == plan.digest


def test_what_happened_is_told(run: roost.Run) -> None:
    assert [(event.action, event.component) for event in run.events] == [
        ("launched", "actor"),
        ("launched", "rollout"),
        ("launched", "env"),
    ]
    assert "actor: launched, 4 processes" in str(run.events[0])


def test_an_unknown_component_is_named(run: roost.Run) -> None:
    with pytest.raises(roost.WorkerError, match=r"no component 'actr'(.|\n)*did you mean 'actor'"):
        run["actr"]


# -- what is wrong before anything starts ----------------------------------------------------------------


def test_workers_and_components_must_match(cluster: roost.Cluster, plan: roost.Plan) -> None:
    before = held_by(cluster.job)
    with pytest.raises(roost.LaunchError) as caught:
        cluster.launch(plan, {"actor": Reporter, "rolout": Reporter, "env": object})
    said = [finding.what for finding in caught.value.findings]
    assert said[0] == "no worker for component 'rollout'"
    assert said[1] == "the plan has no component 'rolout'"
    assert said[2].startswith("<class 'object'> is not a worker for component 'env'")
    assert "the plan has actor, rollout, env; workers are given for actor, rolout, env" in str(caught.value)
    assert held_by(cluster.job) == before


@pytest.mark.parametrize("wrong", [None, "plan.json", {"cluster": {}}])
def test_what_is_no_plan(cluster: roost.Cluster, wrong: Any) -> None:
    with pytest.raises(roost.ClusterError, match="is not a plan"):
        cluster.launch(wrong, {})


def test_a_plan_of_another_shape_is_refused_node_by_node(cluster: roost.Cluster) -> None:
    other = roost.plan({"cluster": {"component_placement": {"w": "0-15"}}}, "1x4,1x8,1x0,1x4")
    with pytest.raises(roost.PlacementError) as caught:
        cluster.launch(other, {"w": Reporter})
    assert [finding.what for finding in caught.value.findings] == [
        "node 1: the plan was made for 8 x nvidia_gpu, this cluster has 4 x nvidia_gpu",
        "node 2: the plan was made for no accelerators, this cluster has 4 x nvidia_gpu",
        "node 3: the plan was made for 4 x nvidia_gpu, this cluster has no such node",
    ]
    assert caught.value.codes == ("RE121",) * 3


def test_a_method_that_the_group_would_hide_is_refused() -> None:
    class Hidden(roost.Worker):
        def shutdown(self) -> None: ...

        def execute_on(self) -> None: ...

    with pytest.raises(roost.ConfigurationError) as caught:
        Hidden.create_group()
    assert [finding.what for finding in caught.value.findings] == [
        "Hidden.execute_on could not be called: groups have a `execute_on` of their own",
        "Hidden.shutdown could not be called: groups have a `shutdown` of their own",
    ]


def test_every_name_of_a_group_is_guarded() -> None:
    from roost.engine.workers.worker import GROUP_NAMES

    shown = {name for name in dir(roost.WorkerGroup) if not name.startswith("_")}
    assert shown | {"name", "placements"} == GROUP_NAMES


@pytest.mark.parametrize("wrong", ["0-3", 4, [0, 1]])
def test_what_is_no_strategy(cluster: roost.Cluster, wrong: Any) -> None:
    with pytest.raises(roost.ConfigurationError, match="is not a placement strategy"):
        Reporter.create_group().launch(cluster, wrong)


# -- all or nothing --------------------------------------------------------------------------------------


def test_one_failure_takes_everything_down(clusters: Callable[..., roost.Cluster]) -> None:
    cluster = clusters()
    plan = roost.plan(JOB, cluster)
    workers = {"actor": Reporter, "rollout": Refuses.create_group(1), "env": Sink}
    with pytest.raises(roost.LaunchError) as caught:
        cluster.launch(plan, workers)
    finding = caught.value.findings[0]
    assert finding.what.startswith("rollout rank 1 (node 1")
    assert finding.what.endswith("could not start; the whole job was taken down")
    assert finding.why == "RuntimeError: no such model"
    eventually(lambda: held_by(cluster.job) == 0, 10, "the accelerators are given back")
    left = {
        entry["name"]
        for entry in ray.util.list_named_actors(all_namespaces=True)
        if entry["namespace"] == f"roost.{cluster.job}"
    }
    eventually(
        lambda: (
            not {
                entry["name"]
                for entry in ray.util.list_named_actors(all_namespaces=True)
                if entry["namespace"] == f"roost.{cluster.job}"
                and entry["name"].partition(":")[0] in JOB["cluster"]["component_placement"]
            }
        ),
        10,
        f"no worker is left of {left}",
    )
    with cluster.launch(
        plan, {**workers, "rollout": Sink}
    ) as run:  # the same names and accelerators are free again
        assert len(run["rollout"].how_many().wait(timeout=60)) == 2


def test_shutting_a_run_down_gives_everything_back(clusters: Callable[..., roost.Cluster]) -> None:
    cluster = clusters()
    plan = roost.plan(JOB, cluster)
    run = cluster.launch(plan, {"actor": Source, "rollout": Sink, "env": Sink})
    pids = [*run["actor"].pid().wait(timeout=60), *run["rollout"].pid().wait(timeout=60)]
    assert held_by(cluster.job) == 8
    run.shutdown()
    run.shutdown()
    eventually(lambda: held_by(cluster.job) == 0, 10, "the accelerators are given back")
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids), 20, "the processes end")
    with pytest.raises(roost.WorkerError, match="was shut down"):
        run["actor"].pid()


def test_skipped_components_hold_and_run_nothing(clusters: Callable[..., roost.Cluster]) -> None:
    cluster = clusters()
    with cluster.launch(roost.plan(JOB, cluster), {"actor": Sink, "env": Sink}, skip=["rollout"]) as run:
        assert held_by(cluster.job) == 8
        assert list(run.groups) == ["actor", "env"]
        with pytest.raises(roost.WorkerError, match="component 'rollout' runs nothing in this run"):
            run["rollout"]
        assert {one.state for one in run.status().of("rollout")} == {"not started"}


def test_a_saved_plan_runs_as_it_was_reviewed(
    clusters: Callable[..., roost.Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made on a laptop, from an inventory; its secret comes from the environment of the launch."""
    group = {
        "label": "trainers",
        "node_ranks": "0-1",
        "env_configs": [{"node_ranks": "0-1", "env_vars": {"HF_TOKEN": "t0p", "PLAIN": "seen"}}],
    }
    rules = {"actor": {"node_group": "trainers", "placement": "2-5"}}
    job = {"cluster": {"component_placement": rules, "node_groups": [group]}}
    roost.save_plan(roost.plan(job, "3x4"), tmp_path / "plan.json")
    saved = roost.load_plan(tmp_path / "plan.json")
    cluster = clusters()
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
            for rank, device in enumerate("2301")
        ]
    job["cluster"]["node_groups"][0]["env_configs"][0]["env_vars"]["HF_TOKEN"] = "from the job"
    monkeypatch.delenv("HF_TOKEN")
    told = clusters(num_nodes=None, cluster_cfg=job["cluster"])
    with told.launch(saved, {"actor": Reporter}) as run:
        assert run["actor"].environment("HF_TOKEN").wait(timeout=60)[0] == {"HF_TOKEN": "from the job"}


# -- looking ---------------------------------------------------------------------------------------------


def test_status_sees_idle_busy_stopped_and_dead_processes(
    clusters: Callable[..., roost.Cluster], tmp_path: Path
) -> None:
    cluster = clusters(num_nodes=1)
    plan = roost.plan(
        {"cluster": {"num_nodes": 1, "component_placement": {"source": "0-2", "sink": "3"}}}, cluster
    )
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
        assert (first.generation, first.last_call) == (0, "pid returned")

        blocked = run["source"].execute_on(0).blocks(str(tmp_path / "gate"))
        psutil.Process(pids[1]).send_signal(signal.SIGSTOP)
        psutil.Process(pids[2]).kill()
        try:
            eventually(lambda: run.status()[2].state == "dead", 10, "the dead one is seen")
            eventually(lambda: run.status()[0].state == "busy", 10, "the busy one is seen")
            assert run.status()[0].calls_in_flight == ("blocks",)
            assert run.status()[1].state == "idle"  # stopped, and nothing is asked of it
            assert run.status()[2].last_call == "pid returned"  # what it did is known although it is dead
        finally:
            psutil.Process(pids[1]).send_signal(signal.SIGCONT)
            (tmp_path / "gate").touch()
        blocked.wait(timeout=60)
        run["source"].restart_ranks(2)
        assert [one.generation for one in run.status().of("source")] == [0, 0, 1]
        assert json.loads(json.dumps(run.status().to_dict()))["processes"][3]["component"] == "sink"


def test_a_trace_holds_every_call(run: roost.Run, tmp_path: Path) -> None:
    run["actor"].echo(1).wait(timeout=60)
    with pytest.raises(ValueError, match="on purpose"):
        run["rollout"].raises(ValueError("on purpose"), 1).wait(timeout=60)
    run.trace(tmp_path / "trace.json")
    traced = json.loads((tmp_path / "trace.json").read_text())
    events = traced["traceEvents"]
    processes = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert processes == {0: "actor", 1: "rollout", 2: "env"}
    threads = {
        (one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"
    }
    assert threads[0, 3].startswith("actor:3 (node 0")
    calls = [one for one in events if one["ph"] == "X"]
    assert all(isinstance(one["ts"], float) and one["dur"] >= 0 and one["cat"] == "call" for one in calls)
    echoes = [one for one in calls if (one["pid"], one["name"]) == (0, "echo")]
    assert sorted(one["tid"] for one in echoes) == [0, 1, 2, 3]
    raised = [(one["tid"], one["args"]["outcome"]) for one in calls if one["name"] == "raises"]
    assert sorted(raised) == [(0, "returned"), (1, "raised")]
    for tid in range(4):  # calls of one process follow each other
        mine = sorted((one["ts"], one["dur"]) for one in calls if (one["pid"], one["tid"]) == (0, tid))
        assert all(start + length <= after for (start, length), (after, _) in pairwise(mine))
    assert traced["otherData"]["plan"] == run.plan.digest


def test_processes_are_titled_by_group_and_rank(cluster: roost.Cluster) -> None:
    with Source.create_group().launch(cluster, roost.PackedPlacementStrategy(8, 9), name="titled") as group:
        assert group.title().wait(timeout=60) == ["ray::titled:0.title", "ray::titled:1.title"]
        pids = group.pid().wait(timeout=60)

        def idle() -> list[str]:
            return [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode() for pid in pids]

        eventually(lambda: idle() == ["ray::titled:0", "ray::titled:1"], 10, "idle titles")


def test_nothing_is_left_when_the_driver_ends(clusters: Callable[..., roost.Cluster]) -> None:
    cluster = clusters(job=new_job("whole"))
    run = cluster.launch(roost.plan(JOB, cluster), {"actor": Source, "rollout": Sink, "env": Sink})
    pids = run["actor"].pid().wait(timeout=60)
    assert remains(cluster.job, pids, [])
    cluster.shutdown()
    assert_gone(cluster.job, pids, [cluster.master_port])
