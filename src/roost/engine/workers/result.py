"""The result of a group call: one value per rank, to wait for or to await."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from types import AsyncGeneratorType, GeneratorType
from typing import Any, NamedTuple, NoReturn

from roost.engine.workers.remote_errors import Origin, in_one_line, origin_of, raised_error, without_type
from roost.errors import CallTimeout, Finding, WorkerDied, WorkerError, WorkerRaised, counted

NOT_INSIDE = "a result is an argument itself, or through roost.scatter; it cannot be inside another value"

GENERATORS = (GeneratorType, AsyncGeneratorType)


def refuse_generator(method: str) -> NoReturn:
    """Raised in the worker: a generator cannot be sent, and Ray would keep its first value and drop the others."""
    raise TypeError(f"{method} returned a generator, which cannot be sent; return a list of its values")


def seconds(timeout: Any) -> float | None:
    """A timeout in the form Ray takes: None, or at least 0. Negative seconds, of a past deadline, become 0."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or math.isnan(timeout):
        raise WorkerError(
            code="RE113", what=f"a timeout is a number of seconds or None, not {timeout!r}"[:200]
        )
    return None if timeout == math.inf else max(0.0, float(timeout))


def seconds_or(most: float, timeout: Any) -> float:
    """The seconds of a timeout, for what must end some time: `most` where the timeout is None or infinite."""
    given = seconds(timeout)
    return float(most) if given is None else given


class Ending(NamedTuple):
    """What an error says of a process that has ended."""

    what: str = "died"
    how: str = ""
    why: str = ""
    remedy: str = ""


CALL_LATER = "wait_recovered(), then call again"
WAS_RESTARTED = Ending(
    "was restarted",
    why="the call was for its earlier process",
    remedy=f"{CALL_LATER}; take this_generation() again for calls that belong together",
)


class GroupResult(ABC):
    """The answers of some ranks to one call. Waiting twice gives the same answer.

    A result may be an argument of another group's call, itself or through `roost.scatter`.
    """

    def __init__(self, group: str, method: str, ranks: Sequence[int], seats: Sequence[str]) -> None:
        self.group, self.method, self.ranks = group, method, tuple(ranks)
        self._seats = tuple(seats)  # the node and devices of each of these ranks

    @abstractmethod
    def wait(self, timeout: float | None = None) -> list[Any]:
        """Every rank's value, in rank order. Raises as soon as one rank fails, or when time is up."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether every rank has answered or failed."""

    @abstractmethod
    def as_completed(self, timeout: float | None = None) -> Iterator[tuple[int, Any]]:
        """(rank, value) pairs as they come."""

    @abstractmethod
    def durations(self, timeout: float | None = None) -> list[float]:
        """Seconds each rank spent in the call."""

    @abstractmethod
    def __await__(self) -> Generator[Any, None, list[Any]]: ...

    def __repr__(self) -> str:
        return f"<{self.group}.{self.method} on {len(self.ranks)} ranks>"

    def __reduce__(self) -> Any:
        raise TypeError(NOT_INSIDE)

    def _where(self, position: int) -> str:
        return f"{self.group} rank {self.ranks[position]} ({self._seats[position]})"

    def _late(self, positions: Sequence[int], timeout: float) -> CallTimeout:
        waiting = ", ".join(self._where(position) for position in positions[:4])
        more = f" and {len(positions) - 4} more" if len(positions) > 4 else ""
        error = CallTimeout(
            code="RE112",
            what=f"{self.group}.{self.method} is not done after {timeout:g} s",
            why=f"{len(positions)} of {len(self.ranks)} ranks have not answered: {waiting}{more}",
            remedy="wait again for the same result, or give it a longer timeout",
        )
        error.group, error.rank = self.group, self.ranks[positions[0]]
        return error

    def _raised(
        self,
        position: int,
        cause: BaseException | None,
        text: str,
        others: int = 0,
        origin: Origin | None = None,
    ) -> WorkerRaised:
        """The error of a rank. If an argument failed, the error names the rank that raised it."""
        here = Origin(self.group, self.ranks[position], self._seats[position], self.method)
        origin = origin or origin_of(cause) or here
        own = (origin.group, origin.rank, origin.method) == (here.group, here.rank, here.method)
        also = _also(others) if own else ""  # ranks that did not run have not failed
        finding = Finding(
            code="RE110",
            what=f"{origin.who} raised in {origin.method}: {_summary(cause, text)}{also}",
            why="" if own else self._did_not_run(),
        )
        return raised_error(finding, cause, origin.group, origin.rank, text)

    @staticmethod
    def _raised_inside(error: Exception) -> Exception:
        """The error, for a generator or coroutine to raise: Python replaces a StopIteration that leaves one."""
        stops = isinstance(error, (StopIteration, StopAsyncIteration))
        return without_type(error) if stops and isinstance(error, WorkerRaised) else error

    def _died(self, position: int, ending: Ending, others: int = 0) -> WorkerDied:
        """The error for a rank whose process has ended."""
        what = f"{self._where(position)} {ending.what} in or before {self.method}{ending.how}{_also(others)}"
        return _dead(what, ending.why, self.group, self.ranks[position], ending.remedy)

    def _source_died(self, who: str, group: str, rank: int, ending: Ending) -> WorkerDied:
        """The error for a call whose argument was to come from a process that has ended."""
        why = "; ".join(filter(None, [self._did_not_run(), ending.why]))
        return _dead(f"{who} {ending.what}{ending.how}", why, group, rank, ending.remedy)

    def _did_not_run(self) -> str:
        return f"its result is an argument of {self.group}.{self.method}, which did not run"


def stays_down(group: str, ranks: Iterable[int], remedy: str = "") -> WorkerDied:
    """The error for ranks that have ended and that nothing restarts."""
    down = sorted(ranks)
    named = ", ".join(map(str, down))
    who, them = (f"rank {named} is", "it") if len(down) == 1 else (f"ranks {named} are", "them")
    what = f"{group} {who} down, and nothing restarts {them}"
    return _dead(what, "", group, down[0], remedy or f"restart_ranks({named}) starts {them} again")


def _dead(what: str, why: str, group: str, rank: int, remedy: str) -> WorkerDied:
    remedy = remedy or f"restart_ranks({rank}) starts it again"
    died = WorkerDied(code="RE111", what=what, why=why, remedy=remedy)
    died.group, died.rank = group, rank
    return died


def _also(others: int) -> str:
    return f" ({counted(others, 'other rank')} failed too)" if others else ""


def _summary(cause: BaseException | None, text: str) -> str:
    if cause is not None:
        return in_one_line(cause)[:400]
    return (text.strip().splitlines() or ["an exception"])[-1][:400]
