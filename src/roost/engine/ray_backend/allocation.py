"""One actor of a plain class, with its environment set before the class is loaded."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import ray
from ray import cloudpickle

from roost.engine.backend import AllocationOrder
from roost.engine.connection.actors import NAMESPACE, create_named, on_node
from roost.errors import ClusterError
from roost.inventory.accelerators import accelerator_kind


def start_allocated(order: AllocationOrder, node_id: str, devices: Sequence[str]) -> Any:
    visible = accelerator_kind(order.place.accelerator_type).visible(devices) if devices else {}
    variables = {**visible, **order.variables}
    program = cloudpickle.dumps((order.cls, tuple(order.args), dict(order.kwargs)))
    actor = allocated_actor(order.cls).options(
        name=order.name, namespace=NAMESPACE, num_cpus=0, scheduling_strategy=on_node(node_id)
    )
    # By reference: arguments are kept by Ray's server.
    create = partial(actor.remote, ray.put(variables), ray.put(program))
    return create_named(create, order.name, ClusterError, "choose another worker_name")


def allocated_actor(cls: type) -> Any:
    """A Ray actor class with the methods of `cls`; the real object is made inside, after the environment."""

    def start(self: Any, variables: dict[str, str], program: bytes) -> None:
        os.environ.update(variables)
        made, args, kwargs = cloudpickle.loads(program)
        self._inner = made(*args, **kwargs)

    body: dict[str, Any] = {"__init__": start, "__module__": __name__}
    for name, method in inspect.getmembers(cls, callable):
        if not name.startswith("__"):
            body[name] = _forwarded(name, inspect.iscoroutinefunction(method))
    return ray.remote(type(cls.__name__, (), body))


def _forwarded(name: str, is_async: bool) -> Any:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._inner, name)(*args, **kwargs)

    async def forward_async(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self._inner, name)(*args, **kwargs)

    chosen = forward_async if is_async else forward
    chosen.__name__ = name
    return chosen
