"""Single ranks can be started again where they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from crew import Reporter

import roost

pytestmark = pytest.mark.ray


class StartsOnce(roost.Worker):
    """Rank 1 can be constructed once only."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        if self.rank == 1:
            Path(mark).touch(exist_ok=False)

    def own_rank(self) -> int:
        return self.rank


@pytest.fixture
def group(cluster: roost.Cluster) -> roost.WorkerGroup:
    strategy = roost.PackedPlacementStrategy(2, 5)
    with Reporter.create_group("note").launch(cluster, strategy, name="restarted") as made:
        yield made


def test_a_dead_rank_comes_back_as_it_was_and_the_others_stay(group: roost.WorkerGroup) -> None:
    names = ("RANK", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "CLUSTER_NODE_RANK")
    seen, pids = group.environment(*names).wait(60), group.pid().wait(60)
    with pytest.raises(roost.WorkerDied):
        group.execute_on(2).dies(2).wait(60)
    group.restart_ranks(2)
    assert group.environment(*names).wait(60) == seen
    now = group.pid().wait(60)
    assert [old == new for old, new in zip(pids, now, strict=True)] == [True, True, False, True]
    assert group.execute_on(2).identity().wait(60)[0]["note"] == "note"


def test_other_processes_find_the_new_ranks(group: roost.WorkerGroup, cluster: roost.Cluster) -> None:
    group.restart_ranks()
    attached = roost.WorkerGroup.attach("restarted", cluster)
    assert attached.pid().wait(60) == group.pid().wait(60)
    assert roost.WorkerManager.get_proxy(cluster.job).get_group("restarted")["pids"] == group.pid().wait(60)
    with pytest.raises(roost.WorkerError, match="was not launched by this process"):
        attached.restart_ranks(0)


def test_ranks_that_do_not_exist(group: roost.WorkerGroup) -> None:
    with pytest.raises(roost.WorkerError, match="no rank 4"):
        group.restart_ranks(4)
    assert group.echo(1).wait(60) == [(rank, 1) for rank in range(4)]


def test_a_rank_that_cannot_start_again_leaves_the_others(cluster: roost.Cluster, tmp_path: Path) -> None:
    strategy = roost.PackedPlacementStrategy(0, 2)
    launcher = StartsOnce.create_group(str(tmp_path / "mark"))
    with launcher.launch(cluster, strategy, name="once") as group:
        with pytest.raises(
            roost.LaunchError, match=r"rank 1 .* could not start; the other ranks go on"
        ) as caught:
            group.restart_ranks(1, timeout=60)
        assert "FileExistsError" in str(caught.value)
        assert group.execute_on(0, 2).own_rank().wait(60) == [0, 2]
        with pytest.raises(roost.WorkerDied):
            group.execute_on(1).own_rank().wait(60)


def test_inline_too() -> None:
    with roost.Cluster(num_nodes=1, inline="1x2") as cluster:
        group = Reporter.create_group().launch(cluster)
        group.restart_ranks(1)
        assert group.echo("x").wait() == [(0, "x"), (1, "x")]
