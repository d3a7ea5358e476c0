"""The Python stacks of a job's processes, from every node at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from roost.engine.job.job_folder import StartedProcess
from roost.engine.operating.job_access import ANSWER_WITHIN, JobAccess
from roost.engine.processes.python_stacks import AT_ONCE, EACH_WITHIN, ProcessStacks

DRIVER = "(driver)"  # no component has such a name


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenProcess:
    process: StartedProcess
    stacks: ProcessStacks


def job_stacks(access: JobAccess, wanted: Sequence[StartedProcess]) -> list[SeenProcess]:
    on_each_node = Counter(one.node_id for one in wanted).values()
    rounds = math.ceil(max(on_each_node, default=0) / AT_ONCE)
    within = ANSWER_WITHIN + 2 * EACH_WITHIN * rounds  # py-spy, then the process itself
    told = access.ask_about("stacks", [(one.node_id, one.process) for one in wanted], within)
    return [
        SeenProcess(
            process=one,
            stacks=stacks
            or ProcessStacks(state="unknown", problem=f"{one.host} does not answer, or is gone"),
        )
        for one, stacks in zip(wanted, told, strict=True)
    ]


def driver_of(access: JobAccess) -> StartedProcess | None:
    """The job's driver as a process of a node."""
    driver = access.run.get("driver")
    if not driver:
        return None
    nodes = access.node_ids
    return StartedProcess(
        component=DRIVER,
        rank=0,
        generation=0,
        node=nodes.index(driver["node_id"]) if driver["node_id"] in nodes else -1,
        node_id=driver["node_id"],
        host=str(access.run.get("host", "")),
        pid=driver["pid"],
        started=driver["started"],
    )
