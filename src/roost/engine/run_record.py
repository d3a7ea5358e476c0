"""The history of a run so far, as a value: its plan, its events, and the calls of every process."""

from __future__ import annotations

from dataclasses import dataclass

from roost.engine.events import Event
from roost.engine.workers.call_log import Call
from roost.engine.workers.spans import Span, merged, without
from roost.planning.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """One process, and its calls. A restarted rank has several processes."""

    component: str
    rank: int
    generation: int
    node: int | None
    devices: tuple[int, ...]  # the accelerators it holds
    calls: tuple[Call, ...]
    alive: bool = True

    def span(self, call: Call, until: float) -> Span:
        """When a call ran. A call in which the process died counts as nothing: its duration is not known."""
        return call.start, call.end or (until if self.alive else call.start)

    def busy(self, until: float) -> list[Span]:
        """When the process worked: its calls, without the waits in them."""
        spans = [(call.is_wait, self.span(call, until)) for call in self.calls]
        work = merged(span for is_wait, span in spans if not is_wait)
        return without(work, merged(span for is_wait, span in spans if is_wait))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The history of a run, for traces and reports."""

    job: str
    plan: Plan
    processes: tuple[ProcessRecord, ...]
    events: tuple[Event, ...]
    until: float  # when the record was made

    @property
    def began(self) -> float:
        """When the first call started."""
        return min((call.start for one in self.processes for call in one.calls), default=self.until)
