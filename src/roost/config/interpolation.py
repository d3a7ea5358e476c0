"""Resolves `${...}` in a configuration with OmegaConf, and bounds how much it may expand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from roost.config.plain_data import SECTIONS, interpolations
from roost.config.yaml_text import Positions
from roost.errors import ConfigurationError, Finding, Path, error_for, first_line, shown
from roost.secret_names import hide_rest, looks_secret

MAX_TEXT = 1_000  # characters of a text with interpolations
MAX_IN_TEXT = 20  # interpolations in one text
MAX_STEPS = 700  # interpolations in the document; also the most that OmegaConf may follow
MAX_VALUES = 4_000  # values given to OmegaConf
MAX_RESULT = 20_000  # characters of a resolved text, or values of a resolved mapping


class _TooMuch(Exception):
    pass


def resolve(
    data: dict[str, Any],
    positions: Positions,
    around: Mapping[str, Any] | None = None,
    at: Path = (),
    sections: Sequence[str] = SECTIONS,
    needed: Sequence[str] = ("cluster",),
) -> tuple[dict[str, Any], Positions]:
    """Replace interpolations in the sections roost reads. Only interpolations in `needed` sections must resolve.

    A part of a larger configuration resolves inside it: `data` stands in `around` under the path `at`.
    """
    wanted = [found for section in sections for found in interpolations(data.get(section), (section,))]
    if not wanted:
        return data, positions
    findings: list[Finding] = []
    if len(wanted) > MAX_STEPS:
        path, text = wanted[MAX_STEPS]
        raise error_for([_problem(path, text, "the job holds too many interpolations", positions)])
    root = _Root(_with(dict(around), at, data) if around is not None else data)
    answers: list[tuple[Path, Any]] = []
    secrets = set(positions.secrets)
    for path, text in wanted:
        try:
            if _excessive(text):
                raise _TooMuch(f"it holds more than {MAX_IN_TEXT} references or {MAX_TEXT:,} characters")
            value = root.at(at + path)
            answers.append((path, value))
            if looks_secret(text) and isinstance(value, str) and value:
                secrets.add(value)
        except Exception as error:  # resolvers raise anything; the configuration is at fault
            if path[0] in needed:
                findings.append(_problem(path, text, _reason(error), positions))
    if findings:
        raise error_for(findings)
    texts = dict(positions.texts)
    for path, value in answers:
        texts.pop(path, None)
        data = _with(data, path, value)
    return data, Positions(positions.keys, positions.values, texts, frozenset(secrets))


def _problem(path: Path, text: str, reason: str, positions: Positions) -> Finding:
    missing, hidden = text == "???", any(isinstance(step, str) and looks_secret(step) for step in path)
    quoted = f"the value of {path[-1]}" if hidden else hide_rest(shown(text))
    return Finding(
        code="RC006",
        what=f"{path[-1]}: a value is required here" if missing else f"cannot resolve {quoted}",
        why="" if missing or hidden else hide_rest(reason),
        remedy="write the value" if missing else "define what it refers to, or write the value",
        path=path,
        where=positions.values.get(path) or positions.keys.get(path),
    )


def _reason(error: Exception) -> str:
    said = first_line(error, 10_000)
    return said.split(f"{_TooMuch.__name__} raised while resolving interpolation: ")[-1][:200]


def _excessive(text: str) -> bool:
    return len(text) > MAX_TEXT or text.count("${") > MAX_IN_TEXT


def _with(root: Any, path: Path, value: Any) -> Any:
    """A copy of `root` with `value` at `path`. Only the containers on the way to it are copied."""
    if not path:
        return value
    copy: Any = root.copy()
    copy[path[0]] = _with(root[path[0]], path[1:], value)
    return copy


class _Root:
    """A configuration inside OmegaConf, or the part of it that references may need.

    OmegaConf is slow for every value it holds. This class leaves out sections that OmegaConf refuses or that
    are too large: they belong to the user's code, and matter only if an interpolation refers to them.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.config: Any = OmegaConf.create({})
        self.left, self.room = MAX_STEPS, MAX_VALUES
        self.without: dict[str, Exception] = {}
        self.mentioned = set(re.findall(r"[\w-]+", " ".join(_references(data))))
        for key in sorted(data, key=lambda key: (key not in SECTIONS, key not in self.mentioned)):
            try:
                self._add(key, data[key])
            except Exception as error:
                self.without[key] = error
        self._watch(self.config)

    def _add(self, key: str, value: Any) -> None:
        try:
            self.config[key] = self._ready(value, key, 0)
        except _TooMuch:
            raise
        except Exception:  # most likely a text that only looks like an interpolation
            self.config[key] = self._ready(value, key, 0, careful=True)

    def _ready(self, value: Any, key: Any, depth: int, careful: bool = False) -> Any:
        """The value in a form OmegaConf accepts. References beyond the bounds become missing values."""
        self.room -= 1
        if self.room < 0 or depth > 100:
            raise _TooMuch("the section is too large for interpolations")
        if isinstance(value, (dict, list)) and key not in self.mentioned and _large_without(value):
            return "???"
        if isinstance(value, dict):
            return {name: self._ready(item, name, depth + 1, careful) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._ready(item, index, depth + 1, careful) for index, item in enumerate(value)]
        if isinstance(value, str) and "${" in value:
            self.left -= value.count("${")
            usable = self.left > 0 and not _excessive(value) and (not careful or _parses(value))
            return value if usable else "???"
        if value is None or isinstance(value, (str, int, float, bool)):
            return value
        raise TypeError(type(value).__name__)

    def _watch(self, node: Any) -> None:
        """Make OmegaConf count the references it follows: a few lines can expand to gigabytes."""
        if not isinstance(node, (DictConfig, ListConfig)) or node._is_none() or node._is_missing():
            return
        follow = node.resolve_parse_tree

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.left -= max(1, str(kwargs["node"]._value()).count("${"))
            if self.left < -MAX_STEPS:
                raise _TooMuch(f"it refers to other values more than {MAX_STEPS:,} times over")
            found = follow(*args, **kwargs)
            if isinstance(found, str) and len(found) > MAX_RESULT:
                raise _TooMuch(f"it becomes longer than {MAX_RESULT:,} characters")
            return found

        node.__dict__["resolve_parse_tree"] = counted
        keys: Any = node.keys() if isinstance(node, DictConfig) else range(len(node))
        for key in keys:
            self._watch(node._get_node(key))

    def at(self, path: Path) -> Any:
        if path[0] in self.without:
            raise self.without[str(path[0])]
        value = self.config
        for step in path:
            value = value[step]
        return self._plain(value, [MAX_RESULT], 0)

    def _plain(self, value: Any, left: list[int], depth: int) -> Any:
        left[0] -= 1
        if left[0] < 0 or depth > 100:
            raise _TooMuch(f"it becomes more than {MAX_RESULT:,} values, or contains itself")
        if isinstance(value, (DictConfig, dict)):  # resolvers return either
            return {str(key): self._plain(value[key], left, depth + 1) for key in value}
        if isinstance(value, (ListConfig, list, tuple)):
            return [self._plain(value[index], left, depth + 1) for index in range(len(value))]
        if value is None or isinstance(value, (str, int, float, bool)):
            return value
        raise TypeError(f"it becomes {type(value).__name__}, which is not plain data")


def _references(data: Any) -> Iterator[str]:
    """The texts with references, in no order. Visits a container once: a program's dict may hold itself."""
    seen, waiting = set(), [data]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if "${" in item and not _excessive(item):
                yield item
        elif isinstance(item, (dict, list)) and id(item) not in seen:
            seen.add(id(item))
            waiting += item.values() if isinstance(item, dict) else item


def _large_without(value: Any) -> bool:
    """Whether a value is large and holds no interpolation, or is too large to look for one."""
    count, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        count += 1
        if isinstance(item, str) and "${" in item:
            return False
        waiting += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        if count > MAX_RESULT:  # too large even if it holds an interpolation
            return True
    return count > 100


def unparsable(data: Any, positions: Positions) -> Finding | None:
    """The finding about the first text that OmegaConf cannot parse as an interpolation."""
    for path, text in interpolations(data, ()):
        if not _parses(text):
            return _problem(path, text, "OmegaConf cannot parse it", positions)
    return None


def _parses(text: str) -> bool:
    try:
        OmegaConf.create({"text": text})
    except Exception:
        return False
    return True


def unresolved(config: Any) -> tuple[dict[str, Any], dict[str, Any] | None, Path]:
    """A `DictConfig`'s unresolved data, the configuration it is part of, and its path in that configuration."""
    if not OmegaConf.is_dict(config):
        what = f"a job is a mapping of sections, not {type(config).__name__}"
        raise ConfigurationError(code="RC103", what=what)
    try:
        data, root = OmegaConf.to_container(config, resolve=False), config._get_root()
        whole = None if root is config else OmegaConf.to_container(root, resolve=False)
        at: list[str | int] = []
        node = config
        while node is not root:
            at.insert(0, node._key())
            node = node._get_parent()
    except Exception as error:
        what = "the configuration cannot be read"
        raise ConfigurationError(code="RC006", what=what, why=_reason(error)) from None
    return _mapping(data), _mapping(whole) if at else None, tuple(at)


def _mapping(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):  # the whole configuration is a missing value or one interpolation
        what = "the configuration has no sections"
        raise ConfigurationError(code="RC103", what=what, remedy="start with `cluster:`")
    return data
