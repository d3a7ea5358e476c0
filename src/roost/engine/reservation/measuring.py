"""Measures which accelerators Ray granted: a probe runs in each bundle and reads their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from roost.engine.workers.remote_errors import first_line
from roost.errors import Finding, ReservationError

Bundle = tuple[PlacementGroup, int]
MEASURED_WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class MeasuredBundle:
    """The node of a bundle and the names of its accelerators.

    Ray names only the kinds of accelerators it knows. Of custom resources it has just a count, so there are no
    names.
    """

    node_id: str
    names: list[str]


def measure(bundles: Mapping[Bundle, tuple[str, int]]) -> dict[Bundle, MeasuredBundle]:
    """Measure bundles, each given with its resource and the amount of it."""
    asked = [_probe(bundle, resource, count) for bundle, (resource, count) in bundles.items()]
    try:
        answers = ray.get(asked, timeout=MEASURED_WITHIN)
    except ray.exceptions.GetTimeoutError:
        raise ReservationError(
            Finding(
                code="RE112",
                what=f"the granted accelerators could not be measured within {MEASURED_WITHIN:g} s",
            )
        ) from None
    except ray.exceptions.RayError as error:
        raise ReservationError(
            Finding(
                code="RE107",
                what="the granted accelerators could not be measured",
                why=first_line(error),
                remedy="the probe on that node failed: look at the node's logs, then try again",
            )
        ) from error
    return dict(zip(bundles, answers, strict=True))


def _probe(bundle: Bundle, resource: str, count: int) -> Any:
    amount: dict[str, Any] = {"num_gpus": count} if resource == "GPU" else {"resources": {resource: count}}
    where = PlacementGroupSchedulingStrategy(bundle[0], placement_group_bundle_index=bundle[1])
    return _read_bundle.options(scheduling_strategy=where, **amount).remote(resource)


@ray.remote(num_cpus=0)
def _read_bundle(resource: str) -> MeasuredBundle:
    context = ray.get_runtime_context()
    return MeasuredBundle(
        context.get_node_id(), [str(name) for name in context.get_accelerator_ids().get(resource, ())]
    )
