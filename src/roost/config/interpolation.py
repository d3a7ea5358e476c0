"""Resolves `${...}` in a configuration with OmegaConf, and bounds how much it may expand."""

from __future__ import annotations

import copy
import functools
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    inside: Path = (),
) -> tuple[dict[str, Any], Positions]:
    """Replace interpolations in the sections roost reads. Only interpolations in `needed` sections must resolve.

    A part of a larger configuration resolves inside it: what `data` has `inside` stands in `around` under the path
    `at`.
    """
    wanted = [found for section in sections for found in interpolations(data.get(section), (section,))]
    if not wanted:
        return data, positions
    findings: list[Finding] = []
    if len(wanted) > MAX_STEPS:
        path, text = wanted[MAX_STEPS]
        raise error_for([_problem(path, text, "the job holds too many interpolations", positions)])
    part = functools.reduce(operator.getitem, inside, data)  # type: ignore[arg-type]
    root = _Root(_with(dict(around), at, part) if around is not None else data)
    answers: list[tuple[Path, Any]] = []
    secrets = dict(positions.secrets)
    for path, text in wanted:
        root.secret = False
        try:
            if _excessive(text):
                raise _TooMuch(f"it holds more than {MAX_IN_TEXT} references or {MAX_TEXT:,} characters")
            value, hidden = root.at(at + path[len(inside) :])
            answers.append((path, value))
            secrets.update({(*path, *inside): secret for inside, secret in hidden.items()})
        except Exception as error:  # resolvers raise anything; the configuration is at fault
            if path[0] in needed:
                reason = "" if root.secret else _reason(error)  # it may quote the secret
                findings.append(_problem(path, text, reason, positions))
    if findings:
        raise error_for(findings)
    texts = dict(positions.texts)
    for path, value in answers:
        texts.pop(path, None)
        data = _with(data, path, value)
    return data, Positions(positions.keys, positions.values, texts, secrets)


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
        self.secret = False  # whether a reference that gave the present value names a secret
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
        """Make OmegaConf count the references it follows, and tell which name a secret.

        Without the count a few lines can expand to gigabytes.
        """
        if not isinstance(node, (DictConfig, ListConfig)) or node._is_none() or node._is_missing():
            return
        follow, select = node.resolve_parse_tree, node._resolve_node_interpolation
        evaluate = node._evaluate_custom_resolver

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.left -= max(1, str(kwargs["node"]._value()).count("${"))
            if self.left < -MAX_STEPS:
                raise _TooMuch(f"it refers to other values more than {MAX_STEPS:,} times over")
            found = follow(*args, **kwargs)
            if isinstance(found, str) and len(found) > MAX_RESULT:
                raise _TooMuch(f"it becomes longer than {MAX_RESULT:,} characters")
            return found

        def selected(**given: Any) -> Any:
            found, key = select(**given), given["inter_key"]
            self._note([getattr(key, "raw", key)])  # OmegaConf 2.4 has parsed it already
            return found

        def evaluated(**given: Any) -> Any:
            name, arguments = given["inter_type"], given["inter_args"]
            found = evaluate(**given)
            # The first argument of `oc.env` and its like is a name; the next one is a default, and no reference.
            self._note(arguments[:1] if name.startswith("oc.") else (name, *arguments))
            if isinstance(found, (DictConfig, ListConfig)) and "resolve_parse_tree" not in found.__dict__:
                found = copy.deepcopy(found)  # another config may hold it
                self._watch(found)
            return found

        node.__dict__.update(
            resolve_parse_tree=counted,
            _resolve_node_interpolation=selected,
            _evaluate_custom_resolver=evaluated,
        )
        keys: Any = node.keys() if isinstance(node, DictConfig) else range(len(node))
        for key in keys:
            self._watch(node._get_node(key))

    def _note(self, names: Iterable[Any]) -> None:
        """Remember whether one of the names in a reference is that of a secret."""
        self.secret |= any(isinstance(name, str) and looks_secret(name) for name in names)

    def at(self, path: Path) -> tuple[Any, dict[Path, str]]:
        """The value at this path, and the secrets in it by their paths inside the value."""
        if path[0] in self.without:
            raise self.without[str(path[0])]
        value = self.config
        for step in path:
            value = value[step]
        secrets: dict[Path, str] = {}
        return self._plain(value, (), [MAX_RESULT], secrets), secrets

    def _plain(self, value: Any, path: Path, left: list[int], secrets: dict[Path, str]) -> Any:
        left[0] -= 1
        if left[0] < 0 or len(path) > 100:
            raise _TooMuch(f"it becomes more than {MAX_RESULT:,} values, or contains itself")
        secret = self.secret

        def inner(key: Any, step: str | int) -> Any:
            self.secret = secret
            return self._plain(value[key], (*path, step), left, secrets)

        if isinstance(value, (DictConfig, dict)):  # resolvers return either
            return {str(key): inner(key, str(key)) for key in value}
        if isinstance(value, (ListConfig, list, tuple)):
            return [inner(index, index) for index in range(len(value))]
        if value is None or isinstance(value, (str, int, float, bool)):
            if secret and value not in (None, "") and not isinstance(value, bool):
                secrets[path] = str(value)
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


def unresolved(config: Any) -> tuple[Any, dict[str, Any] | None, Path]:
    """An OmegaConf config's unresolved data, the configuration it is part of, and its path in that configuration."""
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
    return data, mapping(whole) if at else None, tuple(at)


def mapping(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):  # the whole configuration is a missing value or one interpolation
        what = "the configuration has no sections"
        raise ConfigurationError(code="RC103", what=what, remedy="start with `cluster:`")
    return data
