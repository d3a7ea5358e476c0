"""The error classes, and the findings that they carry.

A finding is data: what is wrong, where, why, and what to do. `render` turns findings into text; nothing
else in roost words an error. Errors carry findings as their arguments, so they survive pickling.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from typing import Literal

from roost.secret_names import hide_rest, looks_secret

Path = tuple[str | int, ...]
Severity = Literal["error", "warning"]
Kind = Literal["config", "fit", "advice", "run"]


@dataclass(frozen=True, slots=True)
class Code:
    """The meaning of a stable code. `fit` problems depend on the cluster, `config` problems do not."""

    title: str
    kind: Kind = "config"

    @property
    def severity(self) -> Severity:
        return "warning" if self.kind == "advice" else "error"


CODES: dict[str, Code] = {
    # RC0xx: reading a file
    "RC001": Code("the file cannot be read"),
    "RC002": Code("the YAML is malformed"),
    "RC003": Code("a key is written twice"),
    "RC004": Code("the file is too large, too deep, or expands too far"),
    "RC005": Code("a YAML feature roost refuses"),
    "RC006": Code("an interpolation cannot be resolved"),
    "RC007": Code("a malformed override"),
    "RC008": Code("a job that Hydra cannot compose"),
    # RC1xx: the schema
    "RC101": Code("an unknown key"),
    "RC102": Code("a required key is missing"),
    "RC103": Code("a value of the wrong type"),
    "RC104": Code("a value out of its range"),
    "RC105": Code("a name that is not allowed"),
    "RC106": Code("a component is placed twice"),
    "RC107": Code("a class or a driver that cannot be used"),
    # RL1xx: the rank language
    "RL101": Code("a placement that cannot be parsed"),
    "RL102": Code("a range written backwards"),
    "RL103": Code("resource ranks that do not ascend"),
    "RL104": Code("process ranks that are not 0..N-1 in order"),
    "RL105": Code("`all` where ranks are needed"),
    "RL106": Code("an absurd rank or count"),
    # RI1xx: nodes and node groups
    "RI101": Code("a malformed inventory"),
    "RI102": Code("a reserved or repeated node group label"),
    "RI103": Code("an unknown node group"),
    "RI104": Code("a node that does not exist", "fit"),
    "RI105": Code("a node outside its group"),
    "RI106": Code("a variable or interpreter set twice on one node"),
    "RI107": Code("a hardware entry that does not fit its type"),
    "RI108": Code("fewer nodes than the job asks for", "fit"),
    "RI109": Code("a node rank listed twice"),
    "RI110": Code("one piece of hardware declared by two node groups"),
    # RP1xx: placing
    "RP101": Code("resource ranks that do not exist", "fit"),
    "RP102": Code("a process that would span nodes", "fit"),
    "RP103": Code("counts that do not divide", "fit"),
    "RP104": Code("nothing to place on", "fit"),
    "RP105": Code("a malformed strategy"),
    "RP106": Code("an unknown component"),
    "RP107": Code("one device counted twice through two groups", "fit"),
    "RP108": Code("a number YAML may have rewritten", "fit"),
    "RP109": Code("two kinds of hardware in one process", "fit"),
    "RP110": Code("engines that do not tile the nodes", "fit"),
    "RP111": Code("shares of one accelerator that do not add up", "fit"),
    "RP112": Code("a layout that needs more accelerators than there are", "fit"),
    "RP113": Code("no arrangement has enough accelerators", "fit"),
    "RP114": Code("no arrangement has enough memory", "fit"),
    # RF1xx: profiles
    "RF101": Code("a flow or weights of a profile that make no sense"),
    "RF102": Code("a measured size that cannot be used"),
    "RF103": Code("widths that do not divide each other, or the nodes"),
    "RF104": Code("node groups that a profile cannot be solved on"),
    "RF105": Code("a job that cannot be measured as asked"),
    # RM1xx: model-parallel placement
    "RM101": Code("a component the model-parallel placement needs or does not know"),
    "RM102": Code("accelerators that are not consecutive", "fit"),
    "RM103": Code("actor and rollout overlap in part", "fit"),
    "RM104": Code("parallel sizes that do not fit"),
    "RM105": Code("inference where it cannot be"),
    # RS1xx: saved plans and other files written
    "RS101": Code("a saved plan that cannot be used"),
    "RS102": Code("a file that cannot be written"),
    "RS103": Code("secrets that a saved plan left out and that are nowhere to be found"),
    "RS104": Code("a source of samples, or a saved data buffer, that cannot be used"),
    "RS105": Code("a suggestion that does not hold"),
    # RE1xx: the live cluster
    "RE101": Code("the cluster cannot be reached", "run"),
    "RE102": Code("an unsupported Ray", "run"),
    "RE103": Code("a Ray connection that does not fit", "run"),
    "RE104": Code("nodes that did not join in time", "run"),
    "RE105": Code("node ranks that contradict each other", "run"),
    "RE106": Code("no running job, or several", "run"),
    "RE107": Code("accelerators that cannot be reserved", "fit"),
    "RE108": Code("a worker that could not start", "run"),
    "RE109": Code("a worker that is not where it should be", "run"),
    "RE110": Code("a worker raised an exception", "run"),
    "RE111": Code("a worker died", "run"),
    "RE112": Code("a wait that ran out of time", "run"),
    "RE113": Code("a call that does not fit its group", "run"),
    "RE114": Code("an unknown node or accelerator", "run"),
    "RE115": Code("a name that is taken or not allowed", "run"),
    "RE116": Code("an unknown worker group", "run"),
    "RE117": Code("ports have run out", "run"),
    "RE118": Code("a lock that was not had in time", "run"),
    "RE119": Code("an outdated fencing number", "run"),
    "RE120": Code("an engine that did not become ready", "run"),
    "RE121": Code("a plan that was made for another cluster", "fit"),
    "RE122": Code("components without workers, or workers without a component", "run"),
    "RE123": Code("a channel that was full or empty for too long", "run"),
    "RE124": Code("a closed channel", "run"),
    "RE125": Code("a channel or data buffer that another process has opened differently", "run"),
    "RE126": Code("items of a channel, or the place of a data buffer, that were lost", "run"),
    "RE127": Code("a component that was given up after too many failures", "run"),
    "RE128": Code("the cluster itself is gone", "run"),
    "RE129": Code("a router that cannot be had, or does not answer", "run"),
    "RE140": Code("a live page that cannot be served", "run"),
    "RE150": Code("a job that was taken down", "run"),
    "RE151": Code("part of a job that cannot be read or ended", "run"),
    "RE152": Code("nodes with different versions", "run"),
    "RE153": Code("nodes that do not authenticate alike", "run"),
    "RE154": Code("other accelerators on a node than Ray counts", "run"),
    # RW1xx: advice of the plan
    "RW101": Code("processes split unevenly over nodes", "advice"),
    "RW102": Code("accelerators left idle", "advice"),
    "RW103": Code("a component on more than one accelerator model", "advice"),
    "RW104": Code("more processes than CPUs on a node", "advice"),
    "RW105": Code("nodes the job does not ask for", "advice"),
    "RW106": Code("a key of the older system that does nothing here", "advice"),
    "RW107": Code("process ranks that model-parallel placement does not use", "advice"),
    "RW108": Code("two components that share only where one range ends and the other begins", "advice"),
    "RW109": Code("a restart policy that is not carried out", "advice"),
    "RW110": Code("a flag that may be a misspelt flag of a layout", "advice"),
    "RW111": Code("a piece of hardware listed twice", "advice"),
    "RW112": Code("machines that a scheduler is not told apart", "advice"),
    # RW2xx: advice about the live cluster
    "RW201": Code("a cluster on the network without authentication", "advice"),
    "RW202": Code("other accelerators granted than planned", "advice"),
    "RW203": Code("more nodes than the job asks for", "advice"),
    "RW204": Code("accelerators others hold at the moment", "advice"),
    "RW220": Code("clocks of nodes that differ", "advice"),
    "RW221": Code("few ports to lease", "advice"),
    "RW222": Code("a low limit on open files", "advice"),
    "RW223": Code("little shared memory", "advice"),
    "RW224": Code("leftovers of jobs that have ended", "advice"),
}


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
    """The base of all errors. `findings` holds every problem that was found, not only the first."""

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
    """A channel could not carry out a request. `done` items of a put went in before."""

    done: int = 0


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
        text = repr(value)
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
