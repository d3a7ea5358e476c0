"""A run: the whole job from its plan, in one step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from crew import Reporter
from flow import Sink, Source
from remains import held_by
from running import eventually

import roost
from roost.engine.workers.worker import GROUP_NAMES

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
        assert [kept for kept in attached.plans if kept.digest == plan.digest] == [plan]
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
    assert said[2] == "object is not a worker for component 'env'"
    assert "the plan has actor, rollout, env; workers are given for actor, rolout, env" in str(caught.value)
    assert held_by(cluster.job) == before


@pytest.mark.parametrize("wrong", [None, "plan.json", {"cluster": {}}])
def test_what_is_no_plan(cluster: roost.Cluster, wrong: Any) -> None:
    with pytest.raises(roost.ClusterError, match="is not a plan"):
        cluster.launch(wrong, {})


def test_a_plan_of_another_shape_is_refused_node_by_node(cluster: roost.Cluster) -> None:
    other = roost.plan({"cluster": {"component_placement": {"w": "0-15"}}}, "1x4,1x8,1x0,1x4")
    with pytest.raises(roost.ConfigurationError) as caught:
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

        def _seat(self) -> None: ...

    with pytest.raises(roost.ConfigurationError) as caught:
        Hidden.create_group()
    assert [finding.what for finding in caught.value.findings] == [
        "Hidden._seat could not be called: groups have a `_seat` of their own",
        "Hidden.execute_on could not be called: groups have a `execute_on` of their own",
        "Hidden.shutdown could not be called: groups have a `shutdown` of their own",
    ]


def test_every_name_of_a_group_is_guarded() -> None:
    with roost.Cluster(num_nodes=1, inline="1x1") as cluster:
        group = Reporter.create_group().launch(cluster)
        shown = {name for one in (group, group[:]) for name in dir(one) if not name.startswith("__")}
    assert shown - {"_abc_impl"} == GROUP_NAMES


def test_every_attribute_that_a_worker_is_given_is_guarded() -> None:
    class Bare(roost.Worker):
        def attributes(self) -> list[str]:
            return sorted(vars(self))

    with roost.Cluster(num_nodes=1, inline="1x1") as cluster:
        (given,) = Bare.create_group().launch(cluster).attributes().wait()
    for name in given:
        hidden = type("Hidden", (roost.Worker,), {name: lambda self: None})
        with pytest.raises(roost.ConfigurationError, match=f"Hidden.{name} could not be called"):
            hidden.create_group()


@pytest.mark.parametrize("wrong", ["0-3", 4, [0, 1]])
def test_what_is_no_strategy(cluster: roost.Cluster, wrong: Any) -> None:
    with pytest.raises(roost.ConfigurationError, match="is not a placement strategy"):
        Reporter.create_group().launch(cluster, wrong)


# -- looking ---------------------------------------------------------------------------------------------


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
    assert threads[0, 3_000].startswith("actor:3 (node 0")
    calls = [one for one in events if one["ph"] == "X"]
    assert all(isinstance(one["ts"], float) and one["dur"] >= 0 and one["cat"] == "call" for one in calls)
    echoes = [one for one in calls if (one["pid"], one["name"]) == (0, "echo")]
    assert sorted(one["tid"] for one in echoes) == [0, 1_000, 2_000, 3_000]
    raised = [(one["tid"], one["args"]["outcome"]) for one in calls if one["name"] == "raises"]
    assert sorted(raised) == [(0, "returned"), (1_000, "raised")]
    for tid in range(4):  # calls of one process follow each other
        mine = sorted(
            (one["ts"], one["dur"]) for one in calls if (one["pid"], one["tid"]) == (0, 1_000 * tid)
        )
        assert all(start + length <= after for (start, length), (after, _) in pairwise(mine))
    assert traced["otherData"]["plan"] == run.plan.digest


def test_processes_are_titled_by_group_and_rank(cluster: roost.Cluster) -> None:
    with Source.create_group().launch(cluster, roost.PackedPlacementStrategy(8, 9), name="titled") as group:
        assert group.title().wait(timeout=60) == ["ray::titled:0.title", "ray::titled:1.title"]
        pids = group.pid().wait(timeout=60)

        def idle() -> list[str]:
            return [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode() for pid in pids]

        eventually(lambda: idle() == ["ray::titled:0", "ray::titled:1"], 10, "idle titles")
