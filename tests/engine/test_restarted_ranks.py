"""Single ranks can be started again where they were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from crew import Reporter

import roost
from roost.engine.inline_backend.inline_workers import InlineWorkers

pytestmark = pytest.mark.ray
NAMES = ("RANK", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "CLUSTER_NODE_RANK")


class Restarted(Reporter):
    """Rank 1 cannot be constructed while a file is there."""

    def __init__(self, refusal: str) -> None:
        super().__init__("note")
        if self.rank == 1 and Path(refusal).exists():
            raise RuntimeError("no weights here")


@pytest.fixture(scope="module")
def refusal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("restarted") / "refused"


@pytest.fixture(scope="module")
def run(cluster: roost.Cluster, refusal: Path) -> Iterator[roost.Run]:
    """Two ranks, on two nodes."""
    plan = roost.plan({"cluster": {"component_placement": {"restarted": "3-4"}}}, cluster)
    with cluster.launch(plan, {"restarted": Restarted.create_group(str(refusal))}) as made:
        yield made


@pytest.fixture(scope="module")
def group(run: roost.Run) -> roost.WorkerGroup:
    return run["restarted"]


def check_that_a_trace_has_every_generation(run: roost.Run, folder: Path) -> None:
    group = run["restarted"]
    group.echo(1).wait(60)
    group.restart_ranks(1)
    group.execute_on(1).own_share().wait(60)
    run.trace(folder / "trace.json")
    found = [
        (one["tid"], one["name"], one["args"]["generation"])
        for one in json.loads((folder / "trace.json").read_text())["traceEvents"]
        if one["ph"] == "X"
    ]
    assert found == [(0, "echo", 0), (1_000, "echo", 0), (1_000, "own_share", 1)]
    assert [(one.state, one.generation) for one in run.status()] == [("idle", 0), ("idle", 1)]


def test_a_trace_has_every_generation(run: roost.Run, tmp_path: Path) -> None:
    check_that_a_trace_has_every_generation(run, tmp_path)


def test_a_dead_rank_comes_back_as_it_was_and_the_others_stay(
    group: roost.WorkerGroup, refusal: Path
) -> None:
    seen, pids = group.environment(*NAMES).wait(60), group.pid().wait(60)
    with pytest.raises(roost.WorkerDied):
        group.execute_on(1).dies(1).wait(60)
    # It cannot start again, which leaves the other rank.
    refusal.touch()
    with pytest.raises(
        roost.LaunchError, match=r"rank 1 .* could not start; the other ranks go on"
    ) as caught:
        group.restart_ranks(1, timeout=60)
    assert "RuntimeError: no weights here" in str(caught.value)
    assert group.execute_on(0).pid().wait(60) == pids[:1]
    with pytest.raises(roost.WorkerDied):
        group.execute_on(1).pid().wait(60)
    with pytest.raises(roost.WorkerDied, match="rank 1 is down, and nothing restarts it"):
        group.wait_recovered(60)
    # Now it can.
    refusal.unlink()
    group.restart_ranks(1)
    assert group.environment(*NAMES).wait(60) == seen
    now = group.pid().wait(60)
    assert [old == new for old, new in zip(pids, now, strict=True)] == [True, False]
    assert group.execute_on(1).identity().wait(60)[0]["note"] == "note"


def test_other_processes_find_the_new_ranks(group: roost.WorkerGroup, cluster: roost.Cluster) -> None:
    attached = roost.WorkerGroup.attach("restarted", cluster)
    assert attached.pid().wait(60) == group.pid().wait(60)
    assert roost.WorkerManager.get_proxy(cluster.job).get_group("restarted")["pids"] == group.pid().wait(60)
    with pytest.raises(roost.WorkerError, match="was not launched by this process"):
        attached.restart_ranks(0)


def test_ranks_that_do_not_exist(group: roost.WorkerGroup) -> None:
    with pytest.raises(roost.WorkerError, match="no rank 2"):
        group.restart_ranks(2)
    assert group.echo(1).wait(60) == [(rank, 1) for rank in range(2)]


def check_that_restarts_by_hand_are_in_the_history(run: roost.Run) -> None:
    group, before = run["restarted"], len(run.events)
    group.restart_ranks(1)
    group.restart_ranks()
    one, both = run.events[before:]
    assert {(event.action, event.component, event.cause) for event in (one, both)} == {
        ("restarted", "restarted", "")
    }
    assert (one.rank, one.node, one.detail) == (1, group.placements[1].cluster_node_rank, "by hand")
    assert (both.rank, both.node, both.detail) == (None, None, "ranks 0, 1: by hand")


def test_restarts_by_hand_are_in_the_history(run: roost.Run) -> None:
    check_that_restarts_by_hand_are_in_the_history(run)


def check_that_calls_that_belong_together_reach_no_new_process(group: roost.WorkerGroup) -> None:
    before = group.this_generation()
    group.restart_ranks(1)
    with pytest.raises(roost.WorkerDied) as died:
        before.echo(1).wait(60)
    assert (died.value.group, died.value.rank) == (group.name, 1)
    assert ") was restarted in or before echo" in died.value.findings[0].what
    assert "take this_generation() again" in died.value.findings[0].remedy
    with pytest.raises(roost.WorkerDied, match="was restarted"):
        group.echo(before[1].echo(1)).wait(60)
    assert before[0].echo(2).wait(60) == group[0].echo(2).wait(60)
    assert group.this_generation().echo(3).wait(60) == group.echo(3).wait(60)


def test_calls_that_belong_together_reach_no_new_process(group: roost.WorkerGroup) -> None:
    check_that_calls_that_belong_together_reach_no_new_process(group)


def test_a_rank_that_was_ended_has_not_died(group: roost.WorkerGroup) -> None:
    group.end_ranks(1)
    with pytest.raises(roost.WorkerDied, match=r"rank 1 .* was ended in or before echo") as ended:
        group.echo(1).wait(60)
    assert ended.value.findings[0].why == "by end_ranks, or by a restart that failed"
    assert ended.value.findings[0].remedy == "restart_ranks(1) starts it again"
    group.restart_ranks(1)
    assert group.echo(2).wait(60) == [(0, 2), (1, 2)]


def test_inline_too(tmp_path: Path) -> None:
    with roost.Cluster(num_nodes=1, inline="1x2") as cluster:
        plan = roost.plan({"cluster": {"component_placement": {"restarted": "0-1"}}}, cluster)
        launcher = Restarted.create_group(str(tmp_path / "refused"))
        with cluster.launch(plan, {"restarted": launcher}) as run:
            check_that_a_trace_has_every_generation(run, tmp_path)
            run["restarted"].restart_ranks()
            assert run["restarted"].echo("x").wait() == [(0, "x"), (1, "x")]
            assert [one.generation for one in run.status()] == [1, 2]
            check_that_calls_that_belong_together_reach_no_new_process(run["restarted"])
            check_that_restarts_by_hand_are_in_the_history(run)
        with pytest.raises(roost.WorkerError, match=r"before run.shutdown\(\)"):
            run.trace(tmp_path / "late.json")


def test_a_wait_without_a_limit_has_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InlineWorkers, "wait_recovered", lambda *_: False)
    with roost.Cluster(num_nodes=1, inline="1x2") as cluster:
        strategy = roost.NodePlacementStrategy([0])
        group = Reporter.create_group("note").launch(cluster, strategy, name="late")
        with pytest.raises(roost.CallTimeout, match="'late' has not recovered in 300 s"):
            group.wait_recovered(timeout=None)  # type: ignore[arg-type]
