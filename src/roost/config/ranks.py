"""The rank language: `0-1:0-3,3-5,7-10:7-14`.

    spec      := segment ("," segment)*
    segment   := resources [":" processes]
    resources := "all" | a | a-b
    processes := a | a-b

A parsed spec is a value that prints its canonical text. Ranges stay ranges: no cost here depends on how many
ranks a range holds.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from roost.errors import Finding, shown

MAX_RANK = 99_999_999
MAX_TEXT = 20_000
MOST_PROBLEMS = 20  # reported for one text; more would not help
_SPACE = " \t\n\r\f\v"
_RANGE = re.compile(r"\s*([0-9]+)\s*(?:-\s*([0-9]+)\s*)?", re.ASCII)
_LOOKS_RIGHT = re.compile(r"[0-9][0-9 ]*(?:[-:,][0-9 ]+)*", re.ASCII)
_GRAMMAR = (
    "write ranks as `3`, `0-7`, `all`, or `resources:processes` pairs such as `0-3:0-7`, joined by commas"
)
_NODE_GRAMMARS = {
    "node ranks": "write 0, 0-3, `0,2` or all",
    "spare nodes": "name nodes that nothing else uses, such as 2, 2-3 or `2,4`",
}


@dataclass(frozen=True, slots=True)
class Ranks:
    """The inclusive range first..last."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class Segment:
    """Resource ranks, and the process ranks placed on them. `resources` None means `all`."""

    resources: Ranks | None
    processes: Ranks | None
    place: tuple[int, int] = (0, 1)  # its start and length in the text

    @property
    def num_processes(self) -> int:
        return len(self.processes or self.resources or ())

    def __str__(self) -> str:
        left = "all" if self.resources is None else str(self.resources)
        return left if self.processes is None else f"{left}:{self.processes}"


@dataclass(frozen=True, slots=True)
class RankSpec:
    segments: tuple[Segment, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.segments))


class RankSyntaxError(Exception):
    """The problems of one text, each as (finding without a position, start, length)."""

    def __init__(self, *problems: tuple[Finding, int, int]) -> None:
        super().__init__(*problems)
        self.problems = problems


class _Problems(list[tuple[Finding, int, int]]):
    def add(self, code: str, start: int, length: int, what: str, why: str = "", remedy: str = "") -> None:
        self.append((Finding(code=code, what=what, why=why, remedy=remedy), start, length))

    def raise_if_any(self) -> None:
        if self:
            raise RankSyntaxError(*self[:MOST_PROBLEMS])


def parse_ranks(text: str) -> RankSpec:
    """Parse a placement. `RankSyntaxError` reports all its problems at once."""
    problems = _Problems()
    if not text.strip():
        problems.add("RL101", 0, max(1, len(text)), "the placement is empty", remedy=_GRAMMAR)
    elif len(text) > MAX_TEXT:
        problems.add("RL106", 0, 1, f"a placement of {len(text):,} characters (at most {MAX_TEXT:,})")
    problems.raise_if_any()
    segments, start = [], 0
    for piece in text.split(","):
        segments.append(_segment(piece, start, problems))
        start += len(piece) + 1
    if not problems:
        _check_order([segment for segment in segments if segment], problems)
    problems.raise_if_any()
    return RankSpec(tuple(segment for segment in segments if segment))


def _segment(piece: str, start: int, problems: _Problems) -> Segment | None:
    lead = len(piece) - len(piece.lstrip(_SPACE))
    at, length = start + lead, max(1, len(piece.strip(_SPACE)))
    left, colon, right = piece.partition(":")
    if not piece.strip():
        problems.add("RL101", max(0, at - 1), 1, "an empty segment", remedy="remove the extra comma")
        return None
    if ":" in right:
        problems.add("RL101", at, length, f"{shown(piece.strip(_SPACE))} has two colons", remedy=_GRAMMAR)
        return None
    everything = left.strip() == "all"
    resources = None if everything else _range(left, start, "resource ranks", problems)
    processes = None
    if colon:
        place = start + len(left) + 1
        if right.strip() == "all":
            what, why = "process ranks cannot be `all`", "how many processes there are is what this says"
            remedy = "write how many, such as 0-7, or leave `:all` out for one per resource"
            problems.add("RL105", place, max(1, len(right)), what, why, remedy)
            return None
        processes = _range(right, place, "process ranks", problems)
        if processes is None:
            return None
    if resources is None and not everything:
        return None
    return Segment(resources, processes, (at, length))


def _range(text: str, start: int, role: str, problems: _Problems) -> Ranks | None:
    stripped = text.strip(_SPACE)
    at, length = start + len(text) - len(text.lstrip(_SPACE)), max(1, len(stripped))
    match = _RANGE.fullmatch(text)
    if match is None:
        what = f"{shown(stripped)} is not a range of {role}" if stripped else f"{role} are missing"
        problems.add("RL101", at, length, what, remedy=_advice(stripped, role))
        return None
    digits = [part for part in match.groups() if part is not None]
    if any(len(part) > len(str(MAX_RANK)) for part in digits):
        what = f"{stripped[:40]} goes beyond rank {MAX_RANK:,}"
        problems.add("RL106", at, length, what, remedy="check for a missing comma or dash")
        return None
    first, last = int(digits[0]), int(digits[-1])
    if last < first:
        what = f"the range {stripped} runs backwards"
        problems.add("RL102", at, length, what, remedy=f"write {last}-{first}")
        return None
    return Ranks(first, last)


def _advice(text: str, role: str) -> str:
    if not text and role == "process ranks":
        return "write them after the colon, or leave the colon out for one process per resource"
    grammar = _NODE_GRAMMARS.get(role, _GRAMMAR)
    if text.lower() == "all" and "all" in grammar:
        return (
            "use `all` alone, or name the ranks" if text == "all" else "write `all`, in lower case and alone"
        )
    if text.startswith("-"):
        return "ranks count from 0 up; there are no negative ones"
    strange = next((ch for ch in text if not ch.isascii()), None)
    if strange is None:
        return grammar
    plain = "".join(map(_plain, text)).strip()
    allowed = role not in _NODE_GRAMMARS or ":" not in plain
    right = len(plain) < 100 and _LOOKS_RIGHT.fullmatch(plain) and allowed
    remedy = f"write {plain}" if right else grammar
    return f"it holds U+{ord(strange):04X}, {unicodedata.name(strange, 'a character').lower()}; {remedy}"


def _plain(character: str) -> str:
    """The ASCII character that the author meant, if a keyboard or word processor wrote another one."""
    kind = unicodedata.category(character)
    if kind == "Cf":  # an invisible character
        return ""
    if kind == "Pd" or character in "~\N{MINUS SIGN}\N{FULLWIDTH TILDE}":
        return "-"
    if character in ";\N{IDEOGRAPHIC COMMA}\N{FULLWIDTH SEMICOLON}":
        return ","
    if kind == "Nd":
        return str(unicodedata.decimal(character))
    return unicodedata.normalize("NFKC", character)


def _check_order(segments: list[Segment], problems: _Problems) -> None:
    """Check that resource ranks ascend and that process ranks run from 0 to N-1."""
    previous: Ranks | None = None
    following, mended = 0, ""
    for segment in segments:
        if len(problems) >= MOST_PROBLEMS:
            return
        if segment.resources is None:
            if len(segments) > 1:
                what, remedy = "`all` stands beside other segments", "use `all` alone, or name the ranks"
                why = "it already means every resource, and none may be used twice"
                problems.add("RL103", *segment.place, what, why, remedy)
                return
        elif previous is not None and segment.resources.first <= previous.last:
            what, why, remedy = _disorder(segment.resources, previous)
            mended = mended if problems else _mended(segments)
            if mended:
                why, remedy = "after a comma come resources again; processes are one range", f"write {mended}"
            problems.add("RL103", *segment.place, what, why, remedy)
        previous, processes = segment.resources, segment.processes
        if processes is not None and processes.first != following:
            mended = mended if problems else _mended(segments)
            noun = "process" if len(processes) == 1 else "processes"
            what = f"{noun} {processes} where {following} must come next"
            why = "process ranks run from 0 to N-1 without a gap"
            why += f", and what comes before ends at {following - 1}" if following else ""
            remedy = _instead(segments, mended) or f"start at {following} here"
            problems.add("RL104", *segment.place, what, why, remedy)
        following = processes.last + 1 if processes else following + len(segment.resources or ())


def _instead(segments: list[Segment], mended: str) -> str:
    """The remedy for process ranks that do not follow: written as ranks, and as counts if counts may be meant."""
    counts = _as_counts(segments)
    if not mended or not counts or counts == mended:
        return f"write {mended}" if mended else ""
    if len(segments) == 1:
        return f"write {counts} for {segments[0].processes} processes, or {mended} for one"
    return f"write {counts} if the numbers after colons are how many, or {mended}"


def _as_counts(segments: Sequence[Segment]) -> str:
    """The text if a lone number after a colon, as in `8-15:4`, is a count; empty if it cannot be one."""
    counts: list[int] = []
    following, known = 0, False
    for segment in segments:
        ranks, processes = segment.resources, segment.processes
        count = len(processes or ranks or ())
        if processes is not None and len(processes) == 1:
            if not known and processes.first == following:
                return ""  # the first lone number is the next rank, so all are ranks
            known, count = True, processes.first
            size = len(ranks) if ranks else count
            if count == 0 or (size % count and count % size) or count > 64 * size:
                return ""
        counts.append(count)
        following += count
    return _suggestion(segments, counts)


def _mended(segments: Iterable[Segment]) -> str:
    """The text with process ranks joined (as in `0-3:0,1,2,3`) and counted from 0; empty if still wrong."""
    gathered: list[Segment] = []
    for segment in segments:
        ranks, processes = segment.resources, segment.processes
        over, by = (gathered[-1].resources, gathered[-1].processes) if gathered else (None, None)
        if over and by and ranks and not processes and by.last + 1 == ranks.first <= over.last:
            gathered[-1] = Segment(over, Ranks(by.first, ranks.last))
        elif over and ranks and ranks.first <= over.last:
            return ""
        else:
            gathered.append(segment)
    return _suggestion(gathered, [one.num_processes for one in gathered])


def _suggestion(segments: Iterable[Segment], counts: Iterable[int]) -> str:
    text = str(numbered(segments, counts))
    return text if len(text) < 200 else ""


def numbered(segments: Iterable[Segment], counts: Iterable[int]) -> RankSpec:
    """The segments with `counts` processes each, numbered from 0. Segments without process ranks stay as they are."""
    found, following = [], 0
    for segment, count in zip(segments, counts, strict=True):
        processes = segment.processes and Ranks(following, following + count - 1)
        found.append(Segment(segment.resources, processes))
        following += count
    return RankSpec(tuple(found))


def _disorder(ranks: Ranks, previous: Ranks) -> tuple[str, str, str]:
    """The message about ranks that do not come after the previous ones: what, why, remedy."""
    if ranks.last < previous.first:
        what = f"resource{'s' * (len(ranks) > 1)} {ranks} after {previous}"
        return what, "segments are in ascending order", "put the lower ranks first"
    common = Ranks(max(ranks.first, previous.first), min(ranks.last, previous.last))
    subject = f"resource {common} is" if len(common) == 1 else f"resources {common} are"
    remedy = "for several processes on one resource write resources:processes, such as 0:0-1"
    return f"{subject} named twice", "each resource may be named once", remedy


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as text: 0, 1, 2, 5 are `0-2,5`."""
    runs = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        runs.append(str(Ranks(members[0], members[-1])))
    return ",".join(runs)


def parse_node_ranks(text: str, role: str = "node ranks") -> tuple[Ranks, ...] | None:
    """The ranges of `0`, `0-1` or `0,2-3`, in the order written; None for `all`, which spare nodes cannot be."""
    problems = _Problems()
    if text.strip() == "all" and role == "node ranks":
        return None
    if not text.strip() or len(text) > MAX_TEXT:
        remedy = _NODE_GRAMMARS[role]
        problems.add("RL101", 0, max(1, len(text)), "node ranks are missing", remedy=remedy)
        problems.raise_if_any()
    found, start = [], 0
    for piece in text.split(","):
        ranks = _range(piece, start, role, problems)
        if ranks is not None:
            found.append(ranks)
        start += len(piece) + 1
    problems.raise_if_any()
    return tuple(found)
