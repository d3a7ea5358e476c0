"""How many plans of a job are kept. The job's managers import this, so it imports nothing of planning."""

from __future__ import annotations

from typing import Any

MOST_PLANS = 1_000


def keep_plan(plans: dict[str, Any], digest: str, plan: Any) -> None:
    """Add a plan by its digest. Beyond `MOST_PLANS` the oldest is dropped."""
    plans[digest] = plan
    while len(plans) > MOST_PLANS:
        del plans[next(iter(plans))]
