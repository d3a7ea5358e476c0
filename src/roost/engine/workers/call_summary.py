"""A summary of a call log: the calls in flight, the last call, totals, and how much the process worked recently.

A summary is small whatever the length of the log, so agents can send thousands of them every second.
"""

from __future__ import annotations

from dataclasses import dataclass

from roost.engine.workers.call_log import Call, CallPages, CallTotal
from roost.engine.workers.spans import Span, cut, merged, without

STEP = 3.0  # seconds of one column of the recent use
COLUMNS = 100  # five minutes in all
_TOUCHING = 0.02  # seconds: calls that follow each other this closely are one span of work


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInFlight:
    method: str
    seconds: float  # since it began


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSummary:
    in_flight: tuple[CallInFlight, ...] = ()  # the oldest first
    waits: str = ""  # what it waits for in a call
    last_call: str = ""  # the last one that has ended, with its outcome
    totals: tuple[CallTotal, ...] = ()
    use: tuple[float, ...] = ()  # the share of time it worked in each column; the last column is now


class CallFollower:
    """Reads a log again and again, each time only what is new."""

    def __init__(self, pages: CallPages) -> None:
        self._pages = pages
        self._seen = max(0, pages.count() - pages.slots)  # older calls are overwritten
        self._open: dict[int, Call] = {}
        self._work: list[Span] = []
        self._waits: list[Span] = []
        self._last: Call | None = None

    def summary(self, now: float, runs: bool) -> CallSummary:
        """`runs` says whether the process runs. A call in which it died does not count: its duration is not known."""
        self._read()
        since = now - COLUMNS * STEP
        self._work = merged(cut(self._work, (since, now)), _TOUCHING)
        self._waits = merged(cut(self._waits, (since, now)))
        unfinished = list(self._open.values()) if runs else []
        running = [call for call in unfinished if not call.is_wait]
        work = merged([*self._work, *((call.start, now) for call in running)])
        waits = merged([*self._waits, *((call.start, now) for call in unfinished if call.is_wait)])
        return CallSummary(
            in_flight=tuple(
                CallInFlight(method=call.method, seconds=max(0.0, now - call.start)) for call in running
            ),
            waits=next((call.method for call in unfinished if call.is_wait), ""),
            last_call=f"{self._last.method} {self._last.outcome}" if self._last else "",
            totals=tuple(self._pages.totals()),
            use=_columns(without(work, waits), now),
        )

    def _read(self) -> None:
        count = self._pages.count()
        numbers = [*self._open, *range(max(self._seen, count - self._pages.slots) + 1, count + 1)]
        self._seen, self._open = count, {}
        for number in numbers:
            call = self._pages.call(number)
            if call is None:
                continue
            if call.end is None:
                self._open[number] = call
                continue
            (self._waits if call.is_wait else self._work).append((call.start, call.end))
            if not call.is_wait and (self._last is None or call.end >= (self._last.end or 0.0)):
                self._last = call


def _columns(spans: list[Span], now: float) -> tuple[float, ...]:
    # Columns begin at multiples of their length, so that only the last one changes between two summaries.
    since, worked = (now // STEP + 1 - COLUMNS) * STEP, [0.0] * COLUMNS
    for start, end in cut(spans, (since, now)):
        first, last = int((start - since) / STEP), min(COLUMNS - 1, int((end - since) / STEP))
        for column in range(first, last + 1):
            begin = since + column * STEP
            worked[column] += max(0.0, min(end, begin + STEP) - max(start, begin))
    worked[-1] *= STEP / max(now % STEP, 0.01)  # only a part of the last column is over
    return tuple(round(min(1.0, seconds / STEP), 3) for seconds in worked)
