"""The argument JOB[:component[:rank]] of verbs that look at a running job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from roost.config.fields import NAME
from roost.errors import counted, nearest

if TYPE_CHECKING:
    from roost.engine.job.job_folder import StartedProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    job: str
    component: str | None = None
    rank: int | None = None

    def covers(self, process: StartedProcess) -> bool:
        return self.component in (None, process.component) and self.rank in (None, process.rank)

    def check(self, processes: Iterable[StartedProcess]) -> None:
        """Refuse a component or rank that the job does not have."""
        ranks: dict[str, set[int]] = {}
        for one in processes:
            ranks.setdefault(one.component, set()).add(one.rank)
        if self.component is None:
            return
        if self.component not in ranks:
            raise click.UsageError(
                f"job {self.job} has no component {self.component!r}; {nearest(self.component, ranks)}."
            )
        known = ranks[self.component]
        if self.rank is not None and self.rank not in known:
            raise click.UsageError(
                f"{self.component} of job {self.job} has no rank {self.rank}; "
                f"it has {counted(len(known), 'process')}, {min(known)}-{max(known)}."
            )


def _target(context: click.Context, parameter: click.Parameter, value: str) -> Target:
    job, *others = value.split(":")
    component, rank = [*others, "", ""][:2]
    if len(others) > 2 or not all(NAME.fullmatch(one) for one in (job, *others)):
        raise click.BadParameter(f"{value!r} is not JOB, JOB:component or JOB:component:rank")
    if rank and not (rank.isascii() and rank.isdecimal()):
        raise click.BadParameter(f"{rank!r} is not a rank")
    return Target(job=job, component=component or None, rank=int(rank) if rank else None)


target_argument = click.argument("target", metavar="JOB[:COMPONENT[:RANK]]", callback=_target)


def _job(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not NAME.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not the name of a job")
    return value


job_argument = click.argument("job", metavar="JOB", callback=_job)
optional_job_argument = click.argument("job", required=False, callback=_job)


def described(process: StartedProcess) -> dict[str, object]:
    """The process in JSON output."""
    return {
        "component": process.component,
        "rank": process.rank,
        "generation": process.generation,
        "node": process.node,
        "host": process.host,
        "pid": process.pid,
    }
