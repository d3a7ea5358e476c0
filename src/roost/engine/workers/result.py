"""What a group call returns: one value per rank, to wait for or to await."""

from __future__ import annotations

import contextlib
import math
import pickle
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from types import MemberDescriptorType
from typing import Any

from roost.errors import CallTimeout, Finding, RoostError, WorkerError, WorkerRaised


def seconds(timeout: Any) -> float | None:
    """A timeout as Ray takes it: none, or not negative. A deadline that has passed is no time left."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or math.isnan(timeout):
        raise WorkerError(
            Finding(code="RE113", what=f"a timeout is a number of seconds or None, not {timeout!r}"[:200])
        )
    return None if timeout == math.inf else max(0.0, float(timeout))


class GroupResult(ABC):
    """The answers of some ranks to one call. Waiting twice gives the same answer."""

    def __init__(self, group: str, method: str, ranks: Sequence[int], seats: Sequence[str]) -> None:
        self.group, self.method, self.ranks = group, method, tuple(ranks)
        self._seats = tuple(seats)  # where each of these ranks sits, in words

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

    def _where(self, position: int) -> str:
        return f"{self.group} rank {self.ranks[position]} ({self._seats[position]})"

    def _late(self, positions: Sequence[int], timeout: float) -> CallTimeout:
        waiting = ", ".join(self._where(position) for position in positions[:4])
        more = f" and {len(positions) - 4} more" if len(positions) > 4 else ""
        error = CallTimeout(
            Finding(
                code="RE112",
                what=f"{self.group}.{self.method} is not done after {timeout:g} s",
                why=f"{len(positions)} of {len(self.ranks)} ranks have not answered: {waiting}{more}",
                remedy="wait again for the same result, or give it a longer timeout",
            )
        )
        error.group, error.rank = self.group, self.ranks[positions[0]]
        return error

    def _raised(self, position: int, cause: BaseException | None, text: str, others: int = 0) -> WorkerRaised:
        also = f" ({others} other ranks failed too)" if others else ""
        finding = Finding(
            code="RE110",
            what=f"{self._where(position)} raised in {self.method}: {_summary(cause, text)}{also}",
        )
        return raised_error(finding, cause, self.group, self.ranks[position], text)


def _summary(cause: BaseException | None, text: str) -> str:
    if cause is not None:
        return in_one_line(cause)[:400]
    return (text.strip().splitlines() or ["an exception"])[-1][:400]


def in_one_line(error: BaseException) -> str:
    """An exception inside a message, which is one line: what was found, or the lines of its text."""
    text = "; ".join(map(_said, error.args)) if isinstance(error, RoostError) else str(error)
    said = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return f"{type(error).__name__}: {said}"


def _said(finding: Any) -> str:
    why = getattr(finding, "why", "")
    return f"{getattr(finding, 'what', finding)}{f' ({why})' if why else ''}"


class Described(Exception):
    """Stands for an exception of which no copy can be made in another process as it is."""

    def __init__(
        self, kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any], text: str
    ) -> None:
        super().__init__(kind, args, state, text)

    def __str__(self) -> str:
        return str(self.args[3])

    def rebuilt(self) -> BaseException:
        """An exception of that type, made without its constructor."""
        kind, args, state, _ = self.args
        try:
            made: BaseException = kind.__new__(kind, *args)
            made.args = args
            made.__dict__.update(state)
        except Exception:
            return self
        return made


def as_portable(error: BaseException, pickler: Any = pickle) -> BaseException:
    """The error itself, or a description of it where no copy could be made of it elsewhere."""

    def travels(value: Any) -> bool:
        try:
            pickler.loads(pickler.dumps(value))
        except Exception:
            return False
        return True

    if travels(error):
        return error
    args = error.args if travels(error.args) else ()
    state = {name: value for name, value in error.__dict__.items() if travels(value)}
    return Described(type(error), args, state, str(error))


def raised_error(
    finding: Finding, cause: BaseException | None, group: str, rank: int, remote_traceback: str
) -> WorkerRaised:
    """An error that is also of the type the worker raised, where Python allows that."""
    error: WorkerRaised
    cause = cause.rebuilt() if isinstance(cause, Described) else cause
    try:
        error = _raised_class(type(cause))(finding) if cause is not None else _Raised(finding)
    except Exception:  # a type whose instances cannot be made like this
        error = _Raised(finding)
    if cause is not None:
        _copy_attributes(cause, error)
    error.group, error.rank = group, rank
    error.remote_traceback = remote_traceback  # type: ignore[attr-defined]
    error.__cause__ = cause
    return error


def _copy_attributes(cause: BaseException, error: WorkerRaised) -> None:
    """What the worker's exception knows, such as `errno`: whoever catches its type may ask."""
    error.__dict__.update(cause.__dict__)
    for base in type(cause).__mro__:
        for name, slot in vars(base).items():
            if isinstance(slot, MemberDescriptorType) and not name.startswith("__"):
                with contextlib.suppress(Exception):
                    setattr(error, name, getattr(cause, name))


class _Raised(WorkerRaised):
    remote_traceback: str = ""

    def __str__(self) -> str:
        trace = self.remote_traceback.strip()
        return super().__str__() + (f"\n\nremote traceback:\n{trace}" if trace else "")

    def __reduce__(self) -> tuple[Any, ...]:
        cause = self.__cause__ and as_portable(self.__cause__)
        arguments = (self.findings[0], cause, self.group, self.rank, self.remote_traceback)
        return raised_error, arguments


def _keep_findings(self: _Raised, *findings: Finding) -> None:
    """In place of the constructor of the worker's exception, which may want other arguments."""
    self.args = findings


_Raised.__name__ = _Raised.__qualname__ = "WorkerRaised"
_classes: dict[type, type[_Raised]] = {}


def _raised_class(kind: type[BaseException]) -> type[_Raised]:
    if kind not in _classes:
        if not issubclass(kind, Exception):
            return _Raised
        bases = (_Raised,) if issubclass(_Raised, kind) else (_Raised, kind)
        _classes[kind] = type(f"WorkerRaised[{kind.__name__}]", bases, {"__init__": _keep_findings})
    return _classes[kind]
