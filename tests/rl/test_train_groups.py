"""Train groups on a real Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from engines import Trainer

import roost

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def pool(cluster: roost.Cluster) -> Iterator[roost.Pool]:
    layout = roost.Layout(actor_num_gpus_per_node=2, rollout_num_gpus=2, colocate=True, accelerators="3-4")
    with cluster.pool(layout) as made:
        yield made


@pytest.fixture(scope="module")
def trainers(pool: roost.Pool) -> Iterator[roost.TrainGroup]:
    with roost.TrainGroup(Trainer.create_group(size=7), pool, timeout=60) as made:
        yield made


def test_every_call_runs_on_every_rank(trainers: roost.TrainGroup) -> None:
    assert trainers.world_size == len(trainers) == 2
    assert trainers.init("small") == [(rank, "small") for rank in range(2)]
    assert trainers.train(3, batch=roost.scatter("ab")) == [(3, letter) for letter in "ab"]
    assert trainers.eval() == ["small"] * 2
    assert trainers.save("here") == [f"here/{rank}" for rank in range(2)]
    assert trainers.update_weights() == [7] * 2
    assert trainers.offload() == ["offloaded"] * 2
    assert trainers.onload() == ["onloaded"] * 2


def test_every_call_has_an_async_twin(trainers: roost.TrainGroup) -> None:
    async def overlapping() -> list[list[object]]:
        return list(
            await asyncio.gather(
                trainers.async_init("large"),
                trainers.async_train(1),
                trainers.async_eval(),
                trainers.async_save("x"),
                trainers.async_update_weights(),
                trainers.async_offload(),
                trainers.async_onload(),
            )
        )

    found = asyncio.run(overlapping())
    assert [len(values) for values in found] == [2] * 7
    assert found[2] == ["large"] * 2
    assert trainers.async_train(5).wait(timeout=60) == [(5, None)] * 2


def test_ranks_run_at_the_same_time_and_meet_at_the_leased_port(trainers: roost.TrainGroup) -> None:
    assert trainers.workers.meet(2).wait(timeout=60) == [2] * 2
    assert len(set(trainers.workers.rendezvous().wait(timeout=60))) == 1


def test_rank_i_sits_on_the_ith_accelerator_and_is_charged_its_share(trainers: roost.TrainGroup) -> None:
    where = [(int(node), int(device)) for node, device, _ in trainers.workers.where().wait(timeout=60)]
    assert where == [(one.node, one.device) for one in trainers.pool.role("actor")]
    assert where == [(0, 3), (1, 0)]
    assert trainers.workers.own_share().wait(timeout=60) == [0.8] * 2


def test_released_trainers_come_back_on_the_same_accelerators(trainers: roost.TrainGroup) -> None:
    before = trainers.workers.where().wait(timeout=60)
    trainers.init("gone")
    trainers.release()
    trainers.release()
    with pytest.raises(roost.WorkerError, match=r"were released[\s\S]*recreate\(\) starts them again"):
        trainers.train(1)
    assert "released" in repr(trainers)
    trainers.recreate()
    after = trainers.workers.where().wait(timeout=60)
    assert [where[:2] for where in after] == [where[:2] for where in before]
    assert not {pid for *_, pid in after} & {pid for *_, pid in before}
    assert trainers.eval() == ["new"] * 2


def test_a_critic_beside_the_actor(cluster: roost.Cluster) -> None:
    layout = roost.Layout(actor_num_gpus_per_node=1, rollout_num_gpus=0, use_critic=True)
    with (
        cluster.pool(layout) as pool,
        roost.TrainGroup(Trainer, pool, name="second-actor", timeout=60) as actor,
        roost.TrainGroup(Trainer, pool, "critic", timeout=60) as critic,
    ):
        assert actor.workers.own_share().wait(60) == critic.workers.own_share().wait(60) == [0.5]
        places = [one[:2] for one in actor.workers.where().wait(60)]
        assert [one[:2] for one in critic.workers.where().wait(60)] == places


def test_what_does_not_run_here_is_named(cluster: roost.Cluster) -> None:
    layout = roost.Layout(actor_num_nodes=0, debug_rollout_only=True, rollout_num_gpus=2)
    with cluster.pool(layout) as pool:
        with pytest.raises(roost.PlacementError, match=r"nothing runs as 'actor' in this pool") as caught:
            roost.TrainGroup(Trainer, pool)
        assert "its mode is debug_rollout_only" in str(caught.value)
        with pytest.raises(roost.PlacementError, match="unknown role 'critic'"):
            pool.role("critic")


def test_wrong_arguments_have_words(pool: roost.Pool) -> None:
    for workers in (None, 5, dict, pool):
        with pytest.raises(roost.ConfigurationError, match=r"is not a subclass of roost\.Worker"):
            roost.TrainGroup(workers, pool)
    with pytest.raises(roost.ConfigurationError, match="None is not a pool"):
        roost.TrainGroup(Trainer, None)
    with pytest.raises(roost.PlacementError, match="nothing runs as 5"):
        roost.TrainGroup(Trainer, pool, role=5)
    with pytest.raises(roost.RoostError, match="is not a group name"):
        roost.TrainGroup(Trainer, pool, name=5)
    with pytest.raises(roost.WorkerError, match="a timeout is a number"):
        roost.TrainGroup(Trainer, pool, timeout="x")


def test_a_method_the_trainers_lack_is_named() -> None:
    with roost.Cluster(num_nodes=1, inline="1x1") as cluster:
        pool = cluster.pool(roost.Layout(actor_num_gpus_per_node=1, rollout_num_gpus=0))
        trainers = roost.TrainGroup(Silent, pool, name="silent")
        with pytest.raises(AttributeError, match="have no method 'save'") as caught:
            trainers.save()
        assert "_logger" not in str(caught.value)


class Silent(roost.Worker):
    def train(self) -> None:
        pass


def test_inline_the_same_program_runs_in_one_process() -> None:
    with roost.Cluster(num_nodes=2, inline="2x4") as cluster:
        pool = cluster.pool(roost.Layout(actor_num_gpus_per_node=6, rollout_num_gpus=6, colocate=True))
        trainers = roost.TrainGroup(Trainer, pool)
        assert trainers.init("small") == [(rank, "small") for rank in range(6)]
        trainers.release()
        trainers.recreate()
        assert trainers.train(2, roost.scatter(range(6))) == [(2, number) for number in range(6)]
