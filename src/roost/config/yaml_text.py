"""Reads YAML text as plain data, with the position of every key and value.

The reader takes fewer scalars for numbers than YAML 1.1 does: `4:7` is the text "4:7", not 247. Keys are
always text. It bounds aliases, depth and size before a hostile file can cost time or memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from roost.config.yaml_mistakes import Mark, malformed, span_at, without_secret
from roost.errors import ConfigurationError, Finding, Path, Span, error_for

MAX_BYTES = 1 << 20
MAX_DEPTH = 40
MAX_VALUES = 30_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BEFORE_CONTENT = re.compile(r"(?:[&!][^\s,\[\]{}]*\s+)+(?=[^\s,\]}])")  # the anchors and tags before a value
_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(
    r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_TRUE = frozenset(word for base in ("true", "yes", "on") for word in (base, base.title(), base.upper()))
_FALSE = frozenset(word for base in ("false", "no", "off") for word in (base, base.title(), base.upper()))
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "map", "seq")
)
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Positions:
    """The position of each path's key and value in the text."""

    keys: dict[Path, Span] = field(default_factory=dict)
    values: dict[Path, Span] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)  # plain scalars as written
    secrets: dict[Path, str] = field(default_factory=dict)  # given by references to secrets

    @property
    def tables(self) -> tuple[dict[Path, Any], ...]:
        return self.keys, self.values, self.texts, self.secrets


@dataclass(slots=True)
class _Node:
    mark: Any  # the start of its content, after anchors and tags
    end: Any
    value: Any  # str (scalar), list[_Node], or list[tuple[_Node, _Node]]
    plain: bool = False
    tag: Literal["map", "seq"] | None = None  # None: a scalar


class _Reader:
    def __init__(self, text: str, source: str, max_values: int) -> None:
        self.text, self.source, self.max_values = text, source, max_values
        self.lines = _LINE_BREAK.split(text)
        self.findings: list[Finding] = []
        self.reported: set[Span | None] = set()
        self.positions = Positions()
        self.anchors: dict[str, _Node] = {}
        self.count = 0
        self.merging = 0

    def span(self, mark: Any, end: Any = None) -> Span:
        return span_at(self.lines, self.source, mark, end)

    def fail(self, code: str, what: str, mark: Any, why: str = "", remedy: str = "") -> ConfigurationError:
        where = without_secret(self.span(mark), self.lines)
        return ConfigurationError(code=code, what=what, why=why, remedy=remedy, where=where)

    # -- events to nodes ---------------------------------------------------------------------------------

    def compose(self) -> _Node | None:
        events = self._events()
        root: _Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    what, remedy = "the file holds more than one YAML document", "keep one document in a file"
                    raise self.fail("RC005", what, event.start_mark, remedy=remedy)
                root = self._node(next(events), events, 0)
        return root

    def _events(self) -> Iterator[Any]:
        loader = None
        strange = _UNREADABLE.search(self.text)
        if strange:
            raise self._unreadable(strange)
        try:
            loader = _Loader(self.text)
            while loader.check_event():
                yield loader.get_event()
        except yaml.MarkedYAMLError as error:
            raise ConfigurationError(malformed(error, self.lines, self.source)) from None
        except (yaml.YAMLError, UnicodeError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ConfigurationError(code="RC002", what=f"{self.source}: not valid YAML: {reason}") from None
        finally:
            if loader is not None:
                loader.dispose()

    def _unreadable(self, strange: re.Match[str]) -> ConfigurationError:
        before = _LINE_BREAK.split(self.text[: strange.start()])
        where = self.span(Mark(len(before) - 1, len(before[-1]))).part(0, 1)
        what = f"not valid YAML: the character U+{ord(strange[0]):04X} is not allowed"
        remedy = "remove it; is this a text file?"
        return ConfigurationError(code="RC002", what=what, remedy=remedy, where=where)

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> _Node:
        self._bound(event.start_mark, depth)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                what = "an alias without an anchor"  # without its name, which may be a password that begins with *
                why = "a value that begins with * repeats one marked with & above it"
                remedy = "put a text that begins with * in quotes, or mark what it should repeat"
                raise self.fail("RC002", what, event.start_mark, why, remedy)
            return self.anchors[event.anchor]
        tag = event.tag
        if tag not in (None, "!") and tag not in _TAGS:
            why = "a value that begins with ! has a tag, and roost reads plain data only"
            remedy = "remove the tag, or put a text that begins with ! in quotes"
            raise self.fail("RC005", "a tag is not allowed", event.start_mark, why, remedy)
        node = _Node(self._content(event), event.end_mark, None)
        if event.anchor:
            self.anchors[event.anchor] = node
        if isinstance(event, yaml.ScalarEvent):
            node.value, node.plain = event.value, event.style in (None, "") and tag is None
            return node
        items: list[Any] = []
        node.value = items
        if isinstance(event, yaml.SequenceStartEvent):
            node.tag = "seq"
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self._node(event, events, depth + 1))
        else:
            node.tag = "map"
            while not isinstance(event := next(events), yaml.MappingEndEvent):
                key = self._node(event, events, depth + 1)
                items.append((key, self._node(next(events), events, depth + 1)))
        # None: the span goes to the end of the line.
        node.end = None if event.end_mark.line != node.mark.line else event.end_mark
        return node

    def _content(self, event: Any) -> Mark:
        line, column = event.start_mark.line, event.start_mark.column
        if event.anchor or event.tag:
            before = _BEFORE_CONTENT.match(self.lines[line], column)
            column = before.end() if before else column
        return Mark(line, column)

    def _bound(self, mark: Any, depth: int) -> None:
        self.count += 1
        if depth > MAX_DEPTH:
            remedy = "flatten it; an alias to something around itself never ends"
            raise self.fail("RC004", f"nested more than {MAX_DEPTH} levels deep", mark, remedy=remedy)
        if self.count > self.max_values:
            why = "aliases are counted each time they are used"
            remedy = "a job is far smaller; write it without aliases to see what grows"
            raise self.fail("RC004", f"more than {self.max_values:,} values", mark, why, remedy)

    # -- nodes to data -----------------------------------------------------------------------------------

    def build(self, node: _Node, path: Path) -> Any:
        self._bound(node.mark, len(path))
        self.positions.values[path] = self._value_span(node)
        if node.tag == "map":
            return self._mapping(node, path)
        if node.tag == "seq":
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        if not node.plain:
            return node.value
        self.positions.texts[path] = node.value
        return plain_value(node.value)

    def _value_span(self, node: _Node) -> Span:
        if isinstance(node.value, str) and node.value.strip() and not node.plain:
            text, (line, column) = node.value.rstrip(), node.mark
            below = self.lines[line + 1] if line < node.end.line < len(self.lines) else ""
            if self.lines[line].startswith(text, column + 1):  # inside the quotes
                return self.span(Mark(line, column + 1), Mark(line, column + 1 + len(text)))
            if below.strip() == text:  # a block below its `|`
                return self.span(Mark(line + 1, len(below) - len(below.lstrip())))
        return self.span(node.mark, node.end)

    def _mapping(self, node: _Node, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        written: dict[str, Span] = {}
        merges: list[_Node] = []
        for key, value in node.value:
            name, span = key.value, self.span(key.mark, key.end)
            if not isinstance(name, str):
                what = "a key must be text, not a list or a mapping"
                remedy = "quote it if it is meant as text"
                self._found(Finding(code="RC005", what=what, remedy=remedy, path=path, where=span))
                continue
            here, merge = (*path, name), name == "<<" and key.plain
            if name in written:
                what, line = f"the key {name!r} is written twice", written[name].line
                why = f"it is first written on line {line}; YAML would silently keep one of the two"
                remedy = "merge a list of both: `<<: [*a, *b]`" if merge else "keep one of them"
                self._found(Finding(code="RC003", what=what, why=why, remedy=remedy, path=here, where=span))
                continue
            written[name] = span
            if merge:
                merges += value.value if value.tag == "seq" else [value]
                continue
            self.positions.keys[here] = span
            data[name] = self.build(value, here)
        for merged in merges:
            if merged.tag != "map":
                what, remedy = "<< can only merge mappings", "give it an alias of a mapping"
                raise self.fail("RC002", what, merged.mark, remedy=remedy)
            for name, value in self._merged(merged, path, data).items():
                data.setdefault(name, value)
        return data

    def _found(self, finding: Finding) -> None:
        if finding.where not in self.reported:  # an alias repeats the problems of its anchor
            self.reported.add(finding.where)
            self.findings.append(finding)

    def _merged(self, node: _Node, path: Path, written: dict[str, Any]) -> dict[str, Any]:
        """The data of a merged mapping. Its positions count only for keys that are not in `written`."""
        self.merging += 1
        self._bound(node.mark, len(path) + self.merging)
        outer, self.positions = self.positions, Positions()
        data = self._mapping(node, path)
        inner, self.positions = self.positions, outer
        self.merging -= 1
        level = len(path)
        for new, known in zip(inner.tables, outer.tables, strict=True):
            known.update({where: found for where, found in new.items() if where[level] not in written})
        return data


def plain_value(text: str) -> Any:
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def read_yaml(text: str, source: str, max_values: int = MAX_VALUES) -> tuple[Any, Positions]:
    """The data of one YAML document, and its positions. Raises if it has problems."""
    reader = _Reader(text, source, max_values)
    root = reader.compose()
    reader.count = 0
    data = None if root is None else reader.build(root, ())
    if reader.findings:
        raise error_for(reader.findings)
    return data, reader.positions
