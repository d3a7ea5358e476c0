"""The record of an accelerator that a job holds. The job's manager loads this module, so it imports almost nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roost.engine.reservation.measuring import Bundle


@dataclass(slots=True)
class HeldAccelerator:
    """An accelerator the job holds: its real name, and the bundle that contains it."""

    name: str
    bundle: Bundle
