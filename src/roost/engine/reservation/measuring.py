"""Measures which accelerators Ray granted: a probe runs in each bundle and reads their names."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from roost.engine.connection.cluster_watch import patient_wait
from roost.engine.workers.remote_errors import first_line
from roost.errors import ReservationError

Bundle = tuple[PlacementGroup, int]
MEASURED_WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class BundleSize:
    """A bundle, its resource, and how much of it the bundle holds."""

    bundle: Bundle
    resource: str
    count: int


@dataclass(frozen=True, slots=True)
class MeasuredBundle:
    """The node of a bundle and the names of its accelerators, and the process that read them.

    Ray names only the kinds of accelerators it knows. Custom resources have just a count, and no names.
    """

    node_id: str
    names: list[str]
    pid: int


def measure(nodes: Sequence[Sequence[BundleSize]]) -> dict[Bundle, MeasuredBundle]:
    """Measure the bundles of each node one after the other, so that Ray reuses one process for all of them."""
    deadline = time.monotonic() + MEASURED_WITHIN
    left = [list(bundles) for bundles in nodes]
    asked = {_probe(bundles[0]): bundles for bundles in left if bundles}
    found: dict[Bundle, MeasuredBundle] = {}
    while asked:
        ready, _ = patient_wait(list(asked), max(0.0, deadline - time.monotonic()))
        if not ready:
            raise ReservationError(
                code="RE112",
                what=f"the granted accelerators could not be measured within {MEASURED_WITHIN:g} s",
            )
        bundles = asked.pop(ready[0])
        try:
            found[bundles.pop(0).bundle] = ray.get(ready[0])
        except ray.exceptions.RayError as error:
            raise ReservationError(
                code="RE107",
                what="the granted accelerators could not be measured",
                why=first_line(error),
                remedy="the probe on that node failed: look at the node's logs, then try again",
            ) from error
        if bundles:
            asked[_probe(bundles[0])] = bundles
    return found


def _probe(size: BundleSize) -> Any:
    gpus = size.resource == "GPU"
    amount: dict[str, Any] = {"num_gpus": size.count} if gpus else {"resources": {size.resource: size.count}}
    where = PlacementGroupSchedulingStrategy(size.bundle[0], placement_group_bundle_index=size.bundle[1])
    return _read_bundle.options(scheduling_strategy=where, **amount).remote(size.resource)


# Ray ends a process that has used an accelerator, unless it may be reused.
@ray.remote(num_cpus=0, max_calls=0)
def _read_bundle(resource: str) -> MeasuredBundle:
    context = ray.get_runtime_context()
    names = [str(name) for name in context.get_accelerator_ids().get(resource, ())]
    return MeasuredBundle(context.get_node_id(), names, os.getpid())
