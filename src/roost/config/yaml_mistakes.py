"""Explains YAML syntax errors without the words of a parser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import yaml

from roost.errors import Finding, Span
from roost.secret_names import hide_rest, looks_secret

_SYNTAX = {  # the parser's message: what it means, and the remedy
    "unexpected end of stream": ("a quote is never closed", "close it"),
    "expected ',' or '}'": ("a `,` or `}` is missing", "close the bracket, or separate entries with commas"),
    "expected ',' or ']'": ("a `,` or `]` is missing", "close the bracket, or separate entries with commas"),
    "expected key": ("the indentation fits no line above", "align it with the keys it belongs to"),
    "expected <block end>": ("the indentation fits no line above", "align it with the keys it belongs to"),
    "expected '-' indicator": ("the indentation fits no line above", "align it with the dashes above"),
    "mapping values are not allowed": (
        "a `:` where no key can be",
        "check the indentation, or quote the text",
    ),
    "found unexpected ':'": ("no space after the `:`", "put a space after it"),
    "could not find expected ':'": ("a key without a `:`", "write `key: value`"),
    "cannot start any token": ("a character that cannot begin a value", "quote the text"),
    "unknown escape character": ("an unknown \\ escape", "double the backslash, or use single quotes"),
}
# A line that looks like a key, but has no space after its colon or has a full-width colon.
_UNSPACED = re.compile(r"\s*(?:-\s+)*([\w.,-]+)(:(?=[^\s/])|\uff1a)")
# Brackets, and the quotes and comments in which brackets do not count.
_BRACKETS = re.compile(r"""[\[\]{}]|"(?:\\.|[^"\\])*"|'[^']*'|(?:^|\s)\#.*""")
_LAST_KEY = re.compile(r"""([\w.-]{1,200})["']?\s{0,60}:\s{0,60}$""")
_FIRST_KEY = re.compile(r"""\s*(?:-\s+)*["']?([\w.-]{1,200})["']?\s{0,60}:(?=\s|$)""")
_SECRET_WITHIN = 2_000  # lines that the text of a secret may have


class Mark(NamedTuple):
    line: int
    column: int


def span_at(lines: Sequence[str], source: str, mark: Any, end: Any = None) -> Span:
    """The span from a mark to another one on its line, or to the end of the line."""
    line = _line(lines, mark)
    stop = end.column if end is not None and end.line == mark.line else len(line.rstrip())
    return Span(
        source=source,
        line=mark.line + 1,
        column=mark.column + 1,
        length=max(1, stop - mark.column),
        excerpt=line,
    )


def _line(lines: Sequence[str], mark: Any) -> str:
    return lines[mark.line] if mark.line < len(lines) else ""


def malformed(error: yaml.MarkedYAMLError, lines: Sequence[str], source: str) -> Finding:
    """The finding for a syntax error."""
    problem = error.problem or error.context or "it cannot be read"
    mark: Any = error.problem_mark or error.context_mark
    begin = error.context_mark
    slip = _slip(lines, mark, problem) if mark else None
    if slip:
        (mark, words, remedy), begin = slip, None
    elif mark and "\t" in _line(lines, mark)[: mark.column + 1]:
        words, remedy = "a tab where only spaces can indent", "indent with spaces"
    else:
        words, remedy = next(
            (known for key, known in _SYNTAX.items() if key in problem),
            (problem, "check indentation, brackets and quotes here and on the line before"),
        )
    still_open = _open_bracket(lines) if mark and not "".join(lines[mark.line :]).strip() else None
    if still_open and not slip:
        words, remedy = "a bracket is never closed", "close it"
        mark, begin = still_open, None
    if begin and mark and ("end of stream" in problem or not "".join(lines[mark.line :]).strip()):
        mark = begin  # point at the construct that is left open, not at the end of the file
    why = ""
    if begin and mark and begin.line != mark.line and "," in words:
        why = f"the bracket on line {begin.line + 1}, column {begin.column + 1} is still open"
    where = without_secret(span_at(lines, source, mark).part(0, 1), lines) if mark else None
    return Finding(code="RC002", what=f"not valid YAML: {words}", why=why, remedy=remedy, where=where)


def _open_bracket(lines: Sequence[str]) -> Mark | None:
    """The last bracket that no line closes. Without a parser this is a good guess."""
    stack: list[Mark] = []
    for number, line in enumerate(lines):
        for found in _BRACKETS.finditer(line):
            if found[0] in "{[":
                stack.append(Mark(number, found.start()))
            elif found[0] in "}]" and stack:
                stack.pop()
    return stack[-1] if stack else None


def without_secret(where: Span, lines: Sequence[str]) -> Span:
    """The span, without its line if that stands below the key of a secret: it may be a part of the value."""
    line, above = (
        _line(lines, Mark(where.line - 1, 0)),
        lines[max(0, where.line - _SECRET_WITHIN) : where.line - 1],
    )
    key = _FIRST_KEY.match(line)
    if above and (_ends_in_secret(above[-1]) or (not key and hide_rest(above[-1]) != above[-1])):
        return replace(where, excerpt="")
    deeper = _indentation(line) + (not key or line.lstrip().startswith("-"))
    for parent in reversed(above):
        found = _FIRST_KEY.match(parent)
        if found and _indentation(parent) < deeper:
            if looks_secret(found[1]):
                return replace(where, excerpt="")
            deeper = _indentation(parent)
    return where


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _ends_in_secret(line: str) -> bool:
    """Whether the line ends in the key of a secret, so that the next line may hold the value."""
    found = _LAST_KEY.search(line[-300:])
    return bool(found and looks_secret(found[1]))


def _slip(lines: Sequence[str], mark: Any, problem: str) -> tuple[Mark, str, str] | None:
    """A typing mistake that the parser misreads, here or on the line before: position, what, remedy."""
    if mark.column and _line(lines, mark)[mark.column - 1 :].startswith("${"):
        remedy = "put the text with ${...} in quotes"
        return Mark(mark.line, mark.column - 1), "`${` inside brackets", remedy
    if not any(words in problem for words in ("mapping values", "expected ':'")):
        return None
    written = [number for number, line in enumerate(lines[: mark.line + 1]) if line.strip()]
    for number in written[:-3:-1]:
        found = _UNSPACED.match(lines[number])
        if found:
            key, where = found[1][:60], Mark(number, found.start(2))
            if found[2] == ":":
                return where, "no space after the `:`", f"put a space after `{key}:`"
            return where, "a full-width colon", f"write `{key}:`, with the colon of the keyboard"
    return None
