"""Hides Ray's warning about many worker processes on a node from users of an embedded cluster.

Ray warns when a node has several times as many workers as CPUs. On an embedded cluster that is normal: all its nodes
share the CPUs of one machine. No setting turns the warning off. Its threshold is the number of workers that Ray
starts at once, which should stay as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray._private import worker as ray_worker

from roost.engine.connection.embedded import INDEX_LABEL

WARNING = "worker processes have been started on node"


def hide_if_embedded() -> Callable[[], None]:
    """Returns a function that shows the warning again."""
    if not any(INDEX_LABEL in (node.get("Labels") or {}) for node in ray.nodes()):
        return lambda: None
    show = ray_worker.print_to_stdstream

    def filtered(data: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        if data.get("pid") != "raylet" or not any(WARNING in line for line in data["lines"]):
            show(data, *args, **kwargs)

    def undo() -> None:
        ray_worker.print_to_stdstream = show

    ray_worker.print_to_stdstream = filtered
    return undo
