"""Programs written for the older system, one after the other in one process; only their imports are changed.

Each prints its results for the test.
"""

from __future__ import annotations

import os

import hydra
from saying import say

from roost import (
    Cluster,
    ComponentPlacement,
    FlexiblePlacementStrategy,
    NodeManager,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    Worker,
)


class TestWorker(Worker):
    def __init__(self):
        super().__init__()

    def run(self):
        self.log_info(f"Hello from TestWorker rank {self._rank}!")


class MyWorker(Worker):
    def __init__(self, msg: str = "Hello, World!"):
        super().__init__()
        self._msg = msg

    def hello(self):
        return self._rank

    def available_gpus(self):
        import torch

        available_gpus = torch.cuda.device_count()
        gpu_ids = [torch.cuda.get_device_properties(i) for i in range(available_gpus)]  # noqa: F841
        return available_gpus


class Actor:
    def __init__(self, first, second=None):
        self.told = [first, second]

    def report(self):
        return [*self.told, os.environ["CUDA_VISIBLE_DEVICES"], os.environ["ROLE"]]


@hydra.main(version_base=None, config_path=".", config_name="conf")
def main(cfg):
    cluster = Cluster(cluster_cfg=cfg.cluster)
    placement = ComponentPlacement(cfg, cluster)
    strategy = placement.get_strategy("test_worker")
    worker = TestWorker.create_group().launch(cluster, placement_strategy=strategy)
    say(["config", worker.run().wait()])


def with_a_flexible_strategy():
    cluster = Cluster(num_nodes=1)

    placement = FlexiblePlacementStrategy([[0, 1], [2], [3]])
    my_worker = MyWorker.create_group().launch(
        cluster=cluster, name="flexible_placement", placement_strategy=placement
    )
    say(["flexible", my_worker.available_gpus().wait()])


def with_a_packed_strategy():
    cluster = Cluster(num_nodes=1)

    placement = PackedPlacementStrategy(start_hardware_rank=0, end_hardware_rank=3)
    my_worker = MyWorker.create_group().launch(
        cluster=cluster, name="packed_placement", placement_strategy=placement
    )
    say(["packed", my_worker.available_gpus().wait()])

    placement_chunked = PackedPlacementStrategy(
        start_hardware_rank=0, end_hardware_rank=3, num_hardware_per_process=2
    )
    my_worker_chunked = MyWorker.create_group().launch(
        cluster=cluster,
        name="chunked_placement",
        placement_strategy=placement_chunked,
    )
    say(["chunked", my_worker_chunked.available_gpus().wait()])

    placement_strided = PackedPlacementStrategy(
        start_hardware_rank=0, end_hardware_rank=3, stride=2, num_hardware_per_process=2
    )
    my_worker_strided = MyWorker.create_group().launch(
        cluster=cluster,
        name="strided_placement",
        placement_strategy=placement_strided,
    )
    say(["strided", my_worker_strided.available_gpus().wait()])


def with_a_node_strategy():
    cluster = Cluster(num_nodes=1)

    placement = NodePlacementStrategy([0] * 4)
    my_worker = MyWorker.create_group().launch(
        cluster=cluster, name="node_placement", placement_strategy=placement
    )
    say(["node", my_worker.hello().wait()])


def with_allocate():
    import ray

    cluster = Cluster(num_nodes=1)
    cls, worker_name, node_id, gpu_id = Actor, "actor-0", 0, 2
    env_vars = {"CUDA_VISIBLE_DEVICES": "2", "ROLE": "0"}
    handle = Cluster.allocate(
        cls,
        worker_name,
        node_id,
        gpu_id,
        env_vars,
        cls_args=["positional"],
        cls_kwargs={"second": "keyword"},
    )
    say(["allocate", ray.get(handle.report.remote())])
    found = ray.get_actor(worker_name, namespace=Cluster.NAMESPACE)
    say(["found", ray.get(found.report.remote())])

    view = View()
    attached = Cluster()
    say(
        [
            "attach",
            view._num_nodes == attached.num_nodes == 1,
            view._master_ip == cluster.master_ip,
            view._master_port == cluster.master_port,
            view._num_gpus_per_node,
            ray.get_runtime_context().namespace == Cluster.NAMESPACE,
        ]
    )


class View:
    """The cluster as a process that attached reads it from its manager."""

    def __init__(self):
        self._node_manager = NodeManager.get_proxy()
        self._nodes = self._node_manager.get_nodes()
        self._num_nodes = len(self._nodes)
        self._master_ip = self._node_manager.get_master_ip()
        self._master_port = self._node_manager.get_master_port()
        self._num_gpus_per_node = self._node_manager.get_num_gpus_per_node()


class Older(Worker):
    def tells(self):
        self._logger.info(f"rank {self._rank} of {self._world_size}")
        return os.environ["CUDA_VISIBLE_DEVICES"]


def with_older_names():
    strategy = PackedPlacementStrategy(
        master_node=0, num_processes=2, master_gpu=1, num_gpus_per_process=1, isolate_gpu=False
    )
    cluster = Cluster(num_nodes=1)
    placements = strategy.get_placement(4, True)
    group = Older.create_group().launch(cluster, placement_strategy=strategy, name="older")
    info = group.worker_info_list
    say(
        [
            "older",
            [place.local_gpu_id for place in placements],
            group.tells().wait(),
            [(one.rank, one.placement.node_id) for one in info],
        ]
    )


main()
with_a_flexible_strategy()
with_a_packed_strategy()
with_a_node_strategy()
with_allocate()
with_older_names()
Cluster(num_nodes=1).shutdown()
