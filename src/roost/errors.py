"""The error classes, and the findings that they carry.

A finding is data: what is wrong, where, why, and what to do. `render` turns findings into text; nothing
else in roost words an error. Errors carry findings as their arguments, so they survive pickling.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches

from roost.codes import CODES, Kind, Severity
from roost.secret_names import hide_rest, hide_secrets, looks_secret

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of one line of a source. Lines and columns count from 1."""

    source: str
    line: int
    column: int
    length: int
    excerpt: str = field(default="", repr=False)  # the line may hold a secret, and reprs end up in logs

    def part(self, start: int, length: int) -> Span:
        return replace(self, column=self.column + start, length=max(1, length))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem or piece of advice: its code, what, where and why, and what to do."""

    code: str
    what: str
    why: str = ""
    remedy: str = ""
    path: Path = ()
    where: Span | None = None

    @property
    def severity(self) -> Severity:
        return CODES[self.code].severity

    @property
    def kind(self) -> Kind:
        return CODES[self.code].kind

    def to_dict(self) -> dict[str, object]:
        """The finding as plain data, without the text of its line, which may hold a secret."""
        data = {"code": self.code, "severity": self.severity, **asdict(self), "path": list(self.path)}
        if data["where"] is not None:
            del data["where"]["excerpt"]
        return data


class RoostError(Exception):
    """The base of all errors. `findings` holds every problem that was found, not only the first.

    `done` counts the items that went in before a put of several items failed.
    """

    done: int = 0

    def __init__(
        self,
        *findings: Finding,
        code: str = "",
        what: str = "",
        why: str = "",
        remedy: str = "",
        path: Path = (),
        where: Span | None = None,
    ) -> None:
        """Takes findings, or the fields of a single one."""
        if code:
            findings = (Finding(code=code, what=what, why=why, remedy=remedy, path=path, where=where),)
        super().__init__(*findings)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.args

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(finding.code for finding in self.findings)

    def __str__(self) -> str:
        return render(self.findings)


class ConfigurationError(RoostError, ValueError, AssertionError):
    """The job or the inventory is wrong. Programs written for older systems catch the other two bases."""


class PlacementError(ConfigurationError):
    """The job is well formed but cannot be placed like this."""


class ClusterError(RoostError):
    """The cluster cannot be reached, refuses the connection, or is not as expected."""


class ReservationError(ClusterError):
    """The accelerators that a job needs cannot be reserved."""


class JobEnded(ClusterError):
    """The job has ended, or the process of roost that should answer."""


class JobTakenDown(JobEnded):
    """A user ended the job with `roost down`."""


class ClusterGone(ClusterError):
    """Ray was stopped, or its head is lost."""


class NoAnswer(ClusterError):
    """A process of roost did not answer in time. It may still carry out the request."""


class LaunchError(RoostError):
    """A group of workers could not be started; nothing of it is left running."""


class WorkerError(RoostError):
    """A call on a group failed. Says which group, rank, node and device."""

    group: str = ""
    rank: int = -1


class WorkerRaised(WorkerError):
    """The worker's code raised `__cause__`; its process goes on."""


class WorkerDied(WorkerError):
    """The worker's process has ended."""


class CallTimeout(WorkerError, TimeoutError):
    """Not every rank answered in time; the call goes on."""


class ChannelError(ClusterError):
    """A channel could not carry out a request."""


class ChannelClosed(ChannelError):
    """The channel takes no more items, or has no more items to give."""


class ChannelTimeout(ChannelError, TimeoutError):
    """The channel stayed full, or had too few items, until the timeout."""


def errors_in(findings: Iterable[Finding]) -> list[Finding]:
    """The findings without warnings."""
    return [finding for finding in findings if finding.severity == "error"]


def error_for(findings: Sequence[Finding]) -> ConfigurationError:
    """One error with all findings: a `PlacementError` if every problem is one of placement."""
    serious = errors_in(findings)
    placing = all(finding.code.startswith(("RP", "RM")) for finding in serious)
    return (PlacementError if placing else ConfigurationError)(*findings)


def close_to(word: str, known: Iterable[str]) -> str | None:
    names = sorted(known, key=lambda name: name[:1] != word[:1])[:100]  # comparing is slow
    close = get_close_matches(word[:64], [name[:64] for name in names], n=1, cutoff=0.6)
    return close[0] if close else None


def nearest(word: object, known: Iterable[str]) -> str:
    """Suggest the known name that an unknown word resembles, and list the known names."""
    names = sorted(known)
    close = close_to(word, names) if isinstance(word, str) else None
    hint = f"did you mean {close!r}? " if close else ""
    shown = ", ".join(names[:20]) + (f", ... ({len(names)} in all)" if len(names) > 20 else "")
    return f"{hint}known: {shown}" if names else "there are none"


def first_line(error: BaseException, limit: int = 300) -> str:
    """The first line of an error's text, or its type when it has no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:limit]


def counted(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `3 processes`."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {plural}"


def shown(value: object, limit: int = 60) -> str:
    """The repr of a value, cut to a length that fits a message."""
    if isinstance(value, int) and abs(value) > 10**limit:
        return "a number of many digits"
    try:
        text = hide_secrets(repr(value))
    except ValueError:  # Python converts no number of thousands of digits to text
        return "a value with a number of many digits"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _printable(text: str, limit: int = 200) -> str:
    """The text without control characters: a file that it quotes must not control the terminal."""
    kept = "".join(ch if ch.isprintable() else "\ufffd" for ch in text[: limit + 1])
    return kept if len(kept) <= limit else kept[: limit - 3] + "..."


def excerpt(place: Span, path: Path) -> list[str]:
    """The line of a position with a caret below it. Values that look secret are not shown."""
    line, column, length = place.excerpt, place.column - 1, place.length
    if not line or len(line) > 2_000:
        return []
    line = hide_rest(line, bare="env_vars" in path)
    if any(isinstance(step, str) and looks_secret(step) and step not in line for step in path):
        return []  # the line may show the value of a secret that is named on another line
    if len(line) > 160:  # a window around the caret
        start = max(0, column - 60)
        line, column = ("..." if start else "") + line[start : start + 150], column - start + 3 * bool(start)
    line = _printable(line.replace("\t", " "))
    before, marked = _width(line[:column]), max(1, _width(line[column : column + length]))
    gutter = " " * len(str(place.line))
    return [f" {gutter} |", f" {place.line} | {line}", f" {gutter} | {' ' * before}{'^' * marked}"]


def _width(text: str) -> int:
    """The width of a text in a terminal: Chinese characters take two columns, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(ch) in "WF" for ch in text)
    return len(text) + wide - sum(unicodedata.category(ch) in ("Mn", "Me") for ch in text)


def dotted(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def render_one(finding: Finding) -> str:
    lines = [f"{finding.severity}[{finding.code}]: {_printable(finding.what, 600)}"]
    if finding.where is not None:
        place = finding.where
        lines.append(f"  --> {_printable(place.source)}:{place.line}:{place.column}")
        lines += excerpt(place, finding.path)
    elif finding.path:
        lines.append(f"  --> {_printable(dotted(finding.path))}")
    if finding.why:
        lines.append(f"  = why: {_printable(finding.why, 600)}")
    if finding.remedy:
        lines.append(f"  = help: {_printable(finding.remedy, 600)}")
    return "\n".join(lines)


def render(findings: Sequence[Finding], limit: int = 50) -> str:
    """All findings as text, errors first."""
    ordered = sorted(findings, key=lambda finding: finding.severity != "error")
    blocks = [render_one(finding) for finding in ordered[:limit]]
    if len(ordered) > limit:
        blocks.append(f"... and {len(ordered) - limit} more")
    return "\n\n".join(blocks)
