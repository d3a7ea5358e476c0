"""Programs written for the older system, one after the other; only their imports are changed."""

from __future__ import annotations

import os
import sys

from omegaconf import OmegaConf
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

CONFIG = """
cluster:
  num_nodes: 1
  component_placement:
    test_worker: # Component name
      node_group: a800
      placement: 0-3

  node_groups:
    - label: a800
      node_ranks: 0
"""


def device_count() -> int:
    """In place of torch.cuda.device_count()."""
    return len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))


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
        return device_count()


class Actor:
    def __init__(self, first, second=None):
        self.told = [first, second]

    def report(self):
        return [*self.told, os.environ["CUDA_VISIBLE_DEVICES"], os.environ["ROLE"]]


def with_a_config(cfg):
    cluster = Cluster(cluster_cfg=cfg.cluster)
    placement = ComponentPlacement(cfg, cluster)
    strategy = placement.get_strategy("test_worker")
    worker = TestWorker.create_group().launch(cluster, placement_strategy=strategy)
    say(["config", worker.run().wait()])
    cluster.shutdown()


def with_strategies():
    cluster = Cluster(num_nodes=1)

    placement = FlexiblePlacementStrategy([[0, 1], [2], [3]])
    my_worker = MyWorker.create_group().launch(
        cluster=cluster, name="flexible_placement", placement_strategy=placement
    )
    say(["flexible", my_worker.available_gpus().wait()])

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

    placement = NodePlacementStrategy([0] * 4)
    my_worker = MyWorker.create_group().launch(
        cluster=cluster, name="node_placement", placement_strategy=placement
    )
    say(["node", my_worker.hello().wait()])
    cluster.shutdown()


def with_allocate():
    import ray

    cluster = Cluster(num_nodes=1)
    env_vars = {"CUDA_VISIBLE_DEVICES": "2", "ROLE": "0"}
    handle = cluster.allocate(
        Actor,
        "actor-0",
        0,
        2,
        env_vars,
        cls_args=["positional"],
        cls_kwargs={"second": "keyword"},
    )
    say(["allocate", ray.get(handle.report.remote())])

    attached = Cluster()
    manager = NodeManager.get_proxy()
    say(
        [
            "attach",
            len(manager.get_nodes()) == attached.num_nodes == 1,
            manager.get_master_ip() == cluster.master_ip,
            manager.get_master_port() == cluster.master_port,
            manager.get_num_gpus_per_node(),
            ray.get_runtime_context().namespace.startswith(Cluster.NAMESPACE),
        ]
    )
    cluster.shutdown()


os.environ["ROOST_JOB"] = sys.argv[1]  # other jobs run on this Ray too
with_a_config(OmegaConf.create(CONFIG))
with_strategies()
with_allocate()
