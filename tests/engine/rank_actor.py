"""An actor of a program that schedules on Ray itself. Importing this costs little: every such actor does it."""

from __future__ import annotations

import os
from typing import Any

import ray


class RankActor:
    def where(self) -> tuple[str, list[Any], str]:
        return (
            ray.get_runtime_context().get_node_id(),
            ray.get_gpu_ids(),
            os.environ["CUDA_VISIBLE_DEVICES"],
        )

    def child_is_in_the_group(self) -> bool:
        @ray.remote(num_cpus=0)
        def own_group() -> str:
            return ray.util.get_current_placement_group().id.hex()

        mine: str = ray.util.get_current_placement_group().id.hex()
        return ray.get(own_group.remote(), timeout=60) == mine
