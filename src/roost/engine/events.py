"""The events of a run, and how far its recoveries are, as values."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roost.placement.placement import Placement

MOST_EVENTS = 10_000  # of a job that are kept in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event in the history of a job."""

    action: str  # such as "launched" or "restarted"
    component: str = ""
    rank: int | None = None
    node: int | None = None
    cause: str = ""
    detail: str = ""
    time: float = field(default_factory=time.time)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.time, timezone.utc).isoformat(timespec="milliseconds")
        who = f"{self.component} rank {self.rank}" if self.rank is not None else self.component or "the run"
        where = f" on node {self.node}" if self.node is not None else ""
        cause = f" ({self.cause})" if self.cause else ""
        return f"{when} {who}{where}: {self.action}{cause}" + (f", {self.detail}" if self.detail else "")


def about_ranks(
    component: str,
    ranks: Sequence[int],
    placements: Sequence[Placement],
    action: str,
    cause: str,
    detail: str,
) -> Event:
    """One event about some ranks of a group."""
    alone = len(ranks) == 1
    return Event(
        action=action,
        component=component,
        rank=ranks[0] if alone else None,
        node=placements[ranks[0]].cluster_node_rank if alone and placements else None,
        cause=cause,
        detail=detail if alone else f"ranks {', '.join(map(str, ranks))}: {detail}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the driver has decided about the lost processes of a group, for other processes of the job."""

    settled: bool = True  # no rank is being restarted or ended
    given_up: str = ""  # why
    down: Mapping[int, int] = field(default_factory=dict)  # the generation of each rank that has ended
