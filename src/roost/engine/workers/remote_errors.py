"""Errors of other processes: how they travel, how they are raised here, and how a message quotes them."""

from __future__ import annotations

import contextlib
import pickle
import traceback
from types import MemberDescriptorType
from typing import Any, NamedTuple

from roost.errors import Finding, RoostError, WorkerRaised
from roost.errors import first_line as first_line


def in_one_line(error: BaseException) -> str:
    """An error's type and whole text without line breaks, to quote in a message."""
    text = "; ".join(map(_said, error.args)) if isinstance(error, RoostError) else str(error)
    said = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return _as_utf8(f"{type(error).__name__}: {said}")


def _said(finding: Any) -> str:
    why = getattr(finding, "why", "")
    return f"{getattr(finding, 'what', finding)}{f' ({why})' if why else ''}"


MOST_BYTES = 1 << 20  # of a pickled error, and of its text with that of its causes; larger ones are described
MOST_TEXT = 10_000  # characters kept of a longer text


def text_travels(error: BaseException) -> bool:
    """Whether Ray can carry the text of the error with its causes: short, and UTF-8, or Ray ends the process."""
    text = "".join(traceback.format_exception(type(error), error, None))
    return len(text) <= MOST_BYTES and _as_utf8(text) == text


def _as_utf8(text: str) -> str:
    """The text with `?` for what UTF-8 cannot write, such as the bytes of a file name that is no text."""
    return text.encode(errors="replace").decode()


def _cut(value: Any) -> Any:
    """The start of a text that is too long to send; any other value unchanged."""
    if not isinstance(value, (str, bytes)) or len(value) <= MOST_TEXT:
        return value
    start = value[:MOST_TEXT]
    text = start if isinstance(start, str) else repr(start)
    return f"{text} ... (cut from {len(value):,} characters)"


class RemoteTraceback(Exception):
    """The cause of an error from another process: Python prints it, with the lines of that process, before the error."""


class Origin(NamedTuple):
    """The worker and the method that raised an error."""

    group: str
    rank: int
    seat: str
    method: str

    @property
    def who(self) -> str:
        return f"{self.group} rank {self.rank} ({self.seat})"


_ORIGIN = "_roost_origin"  # an attribute of the exception, which is pickled with it


def origin_of(error: BaseException | None) -> Origin | None:
    found = getattr(error, _ORIGIN, None)
    return Origin(*found) if isinstance(found, tuple) and len(found) == 4 else None


class Described(Exception):
    """Describes an exception that cannot be pickled."""

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


def as_portable(error: BaseException, pickler: Any = pickle, origin: Origin | None = None) -> BaseException:
    """The error itself if it can be pickled and loaded with its origin; else a description of it."""

    def travels(value: Any) -> bool:
        try:
            carried = pickler.dumps(value)
            if len(carried) > MOST_BYTES:
                return False
            copy = pickler.loads(carried)
        except Exception:
            return False
        return value is not error or origin is None or origin_of(copy) == origin

    if origin is not None:
        with contextlib.suppress(Exception):  # an exception may refuse attributes
            setattr(error, _ORIGIN, tuple(origin))
    if travels(error) and text_travels(error):
        return error
    cut = tuple(map(_cut, error.args))
    args = error.args if travels(error.args) else cut if travels(cut) else ()
    state = {name: value for name, value in error.__dict__.items() if travels(value)}
    if origin is not None:
        state[_ORIGIN] = tuple(origin)
    return Described(type(error), args, state, _as_utf8(_cut(str(error))))


def raised_error(
    finding: Finding, cause: BaseException | None, group: str, rank: int, remote_traceback: str
) -> WorkerRaised:
    """A `WorkerRaised` that is also of the type the worker raised, where Python allows that."""
    error: WorkerRaised
    cause = cause.rebuilt() if isinstance(cause, Described) else cause
    try:
        error = _raised_class(type(cause))(finding) if cause is not None else _Raised(finding)
    except Exception:  # instances of this type cannot be made like this
        error = _Raised(finding)
    if cause is not None:
        _copy_attributes(cause, error)
    error.group, error.rank = group, rank
    error.remote_traceback = remote_traceback  # type: ignore[attr-defined]
    error.__cause__ = cause
    return error


def without_type(error: WorkerRaised) -> WorkerRaised:
    """The same error, which is not of the type that the worker raised."""
    plain = _Raised(*error.findings)
    plain.__dict__.update(error.__dict__)
    plain.__cause__ = error.__cause__
    return plain


def _copy_attributes(cause: BaseException, error: WorkerRaised) -> None:
    """Copy the attributes of the worker's exception, such as `errno`: code that catches its type reads them."""
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
    """Replaces the constructor of the worker's exception type, which may require other arguments."""
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
