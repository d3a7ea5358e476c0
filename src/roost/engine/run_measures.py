"""Measures how long each component takes in an iteration, from the record of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from roost.engine.run_record import ProcessRecord, RunRecord
from roost.engine.workers.spans import cut, merged, without

WARM_UP = 2  # iterations that do not count


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterations:
    """The end of each iteration after the warm-up."""

    ends: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The median duration of an iteration."""
        return median(end - start for start, end in zip(self.ends, self.ends[1:], strict=False))


def iterations_of(record: RunRecord, component: str, method: str) -> Iterations | None:
    """The iterations of a run: each has one call of this method on rank 0. None if there were too few."""
    ends = sorted(
        call.end
        for one in record.processes
        if one.component == component and one.rank == 0
        for call in one.calls
        if call.method == method and call.end is not None
    )[WARM_UP:]
    return Iterations(ends=tuple(ends)) if len(ends) > 1 else None


def seconds_of(
    record: RunRecord, component: str, iterations: Iterations, calls: Sequence[str] = ()
) -> float | None:
    """Seconds of an iteration in which the component has its accelerators; None if nothing was measured.

    `calls` are the first and the last call of the component's part of an iteration: the time from one to the other
    counts, without waits in calls. Without `calls`, the time in calls counts. The slowest rank decides.
    """
    ranks: dict[int, list[ProcessRecord]] = {}
    for one in record.processes:
        if one.component == component:
            ranks.setdefault(one.rank, []).append(one)
    measured = [_of_rank(found, record.until, iterations, calls) for found in ranks.values()]
    return max((seconds for seconds in measured if seconds is not None), default=None)


def _of_rank(
    processes: Sequence[ProcessRecord], until: float, iterations: Iterations, calls: Sequence[str]
) -> float | None:
    begin, end = iterations.ends[0], iterations.ends[-1]
    if not calls:
        busy = [span for one in processes for span in one.busy(until)]
        worked = sum(last - first for first, last in cut(busy, (begin, end)))
        return worked / (len(iterations.ends) - 1) if busy else None
    first_call, last_call = calls[0], calls[-1]
    parts = []
    for one in processes:
        waits = merged(one.span(call, until) for call in one.calls if call.is_wait)
        opened: float | None = None
        for call in one.calls:
            if call.method == first_call and opened is None:
                opened = call.start
            if call.method == last_call and opened is not None and call.end is not None:
                if begin <= opened <= end:
                    parts.append(sum(b - a for a, b in without([(opened, call.end)], waits)))
                opened = None
    return median(parts) if parts else None
