"""Which accelerators Ray granted: asked where it was granted, one probe a bundle, never computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from roost.errors import Finding, ReservationError

Bundle = tuple[PlacementGroup, int]
MEASURED_WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class Granted:
    """What a bundle turned out to be.

    Ray numbers the accelerators it knows; of a resource of one's own it only counts, and there are no names.
    """

    node_id: str
    names: list[str]


def measure(bundles: Mapping[Bundle, tuple[str, int]]) -> dict[Bundle, Granted]:
    """Where each bundle is and what it holds, given its resource and how much of it."""
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
                why=(str(error).strip().splitlines() or [type(error).__name__])[0][:300],
                remedy="the probe on that node failed: look at the node's logs, then try again",
            )
        ) from error
    return dict(zip(bundles, answers, strict=True))


def _probe(bundle: Bundle, resource: str, count: int) -> Any:
    amount: dict[str, Any] = {"num_gpus": count} if resource == "GPU" else {"resources": {resource: count}}
    where = PlacementGroupSchedulingStrategy(bundle[0], placement_group_bundle_index=bundle[1])
    return _granted.options(scheduling_strategy=where, **amount).remote(resource)


@ray.remote(num_cpus=0)
def _granted(resource: str) -> Granted:
    context = ray.get_runtime_context()
    return Granted(
        context.get_node_id(), [str(name) for name in context.get_accelerator_ids().get(resource, ())]
    )
