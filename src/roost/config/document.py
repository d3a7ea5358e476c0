"""A configuration as plain data that knows where each value came from.

It comes from a file, a dict or an OmegaConf `DictConfig`, with `key=value` overrides on top.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from roost.config.yaml_text import MAX_BYTES, MAX_DEPTH, MAX_VALUES, Positions, read_yaml
from roost.errors import ConfigurationError, Finding, Path, Span, error_for

# The sections roost reads; the rest belongs to the user's training code.
SECTIONS = ("cluster", "actor", "rollout", "inference", "reward", "critic", "algorithm")


@dataclass(frozen=True, slots=True)
class Document:
    data: dict[str, Any]
    name: str = "<config>"
    positions: Positions = field(default_factory=Positions)

    @property
    def from_text(self) -> bool:
        """Whether roost read the text itself, so that values are as written."""
        return bool(self.positions.values)

    def value_span(self, path: Path) -> Span | None:
        return self.positions.values.get(path) or self.positions.keys.get(path)

    def key_span(self, path: Path) -> Span | None:
        """The key at this path, or the nearest thing around it that was written."""
        for stop in range(len(path), -1, -1):
            span = self.positions.keys.get(path[:stop]) or (
                self.positions.values.get(path[:stop]) if stop == len(path) or stop else None
            )
            if span is not None:
                return span
        return None

    def text(self, path: Path, value: Any) -> str:
        """A scalar as its author wrote it, where that is known."""
        written = self.positions.texts.get(path)
        return str(value) if written is None else written

    def finding(
        self,
        code: str,
        what: str,
        path: Path,
        *,
        key: bool = False,
        why: str = "",
        remedy: str = "",
        part: tuple[int, int] | None = None,
    ) -> Finding:
        where = self.key_span(path) if key else self.value_span(path) or self.key_span(path)
        if where is not None and part is not None and part[0] + part[1] <= where.length:
            where = where.part(*part)
        return Finding(code=code, what=what, why=why, remedy=remedy, path=path, where=where)


def load(source: Any, overrides: Sequence[str] = ()) -> Document:
    """Read a path, dict, `DictConfig` or `Document`, apply overrides, and resolve interpolations."""
    if isinstance(source, Document):
        document = source
    elif isinstance(source, (str, os.PathLike)):
        document = read_file(FilePath(source))
    elif isinstance(source, Mapping):
        document = Document(_plain_mapping(source))
    elif type(source).__module__.startswith("omegaconf"):
        return _from_omegaconf(source, overrides)
    else:
        raise ConfigurationError(
            Finding(
                code="RC103", what=f"a job is a path, a dict or a DictConfig, not {type(source).__name__}"
            )
        )
    return _resolved(apply_overrides(document, overrides))


def read_file(path: FilePath, max_bytes: int = MAX_BYTES, max_values: int = MAX_VALUES) -> Document:
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ConfigurationError(
                Finding(
                    code="RC004",
                    what=f"{path}: larger than {max_bytes:,} bytes",
                    remedy="a job file is short; is this the right file?",
                )
            )
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigurationError):
            raise
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigurationError(
            Finding(code="RC001", what=f"{path}: cannot be read", why=str(reason), remedy="check the path")
        ) from None
    return parse(text, str(path), max_values)


def parse(text: str, name: str = "<text>", max_values: int = MAX_VALUES) -> Document:
    data, positions, findings = read_yaml(text, name, max_values)
    if findings:
        raise error_for(findings)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        where = positions.values.get(())
        raise ConfigurationError(
            Finding(
                code="RC103",
                what=f"{name}: a job is a mapping of sections",
                where=where,
                remedy="start with `cluster:`",
            )
        )
    return Document(data, name, positions)


def _plain_mapping(source: Mapping[Any, Any]) -> dict[str, Any]:
    count = 0

    def plain(value: Any, path: Path) -> Any:
        nonlocal count
        count += 1
        if len(path) > MAX_DEPTH or count > 20 * MAX_VALUES:
            raise ConfigurationError(
                Finding(
                    code="RC004", what=f"nested too deep or too large at {path[0] if path else 'the top'}"
                )
            )
        if isinstance(value, Mapping):
            return {str(key): plain(item, (*path, str(key))) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(item, (*path, index)) for index, item in enumerate(value)]
        return value

    # Only what roost reads is copied: the rest may hold anything, of any size.
    return {
        str(key): plain(value, (str(key),)) if str(key) in SECTIONS else value
        for key, value in source.items()
    }


# -- overrides -------------------------------------------------------------------------------------------


def apply_overrides(document: Document, overrides: Sequence[str]) -> Document:
    """Hydra's spelling: `a.b=value`, `+a.b=value` and `++a.b=value` set, `~a.b` deletes."""
    if not overrides:
        return document
    data = _deep_copy(document.data)
    spans = Positions(
        dict(document.positions.keys), dict(document.positions.values), dict(document.positions.texts)
    )
    findings: list[Finding] = []
    for override in overrides:
        try:
            _apply(override, data, spans)
        except ConfigurationError as error:
            findings += error.findings
    if findings:
        raise error_for(findings)
    return Document(data, document.name, spans)


def _deep_copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _deep_copy(item) for key, item in value.items()}
    return [_deep_copy(item) for item in value] if isinstance(value, list) else value


def _apply(override: str, data: dict[str, Any], spans: Positions) -> None:
    line = Span(source="<override>", line=1, column=1, length=max(1, len(override)), excerpt=override)

    def fail(what: str, remedy: str = "write overrides as section.key=value") -> ConfigurationError:
        return ConfigurationError(Finding(code="RC007", what=what, remedy=remedy, where=line))

    delete = override.startswith("~")
    target, equals, text = override.lstrip("+~").partition("=")
    if "\n" in override or not (equals or delete) or not target.strip():
        raise fail(f"{override!r} is not an override")
    steps: list[str | int] = list(target.strip().replace("[", ".").replace("]", "").split("."))
    if len(steps) > MAX_DEPTH or "" in steps:
        raise fail(f"{target!r} is not a path of keys")
    here: Any = data
    for depth, step in enumerate(steps):
        if isinstance(here, list):
            if not str(step).isdecimal() or int(step) >= len(here):
                raise fail(
                    f"{step!r} is not one of the {len(here)} entries of {'.'.join(map(str, steps[:depth]))}"
                )
            steps[depth] = step = int(step)
        elif not isinstance(here, dict):
            raise fail(f"{'.'.join(map(str, steps[:depth]))} is a value, so it has no key {step!r}")
        if depth < len(steps) - 1:
            here = here.setdefault(step, {}) if isinstance(here, dict) else here[int(step)]
    path, last = tuple(steps), steps[-1]
    for table in (spans.keys, spans.values, spans.texts):
        for old in [known for known in table if known[: len(path)] == path]:
            del table[old]  # type: ignore[attr-defined]
    if delete:
        if isinstance(here, dict) and last not in here:
            raise fail(f"{target!r} is not there to delete")
        here.pop(last)
        return
    value, found, problems = read_yaml(text, "<override>")
    if problems:
        raise error_for(problems)
    shift = len(override) - len(text)
    for where, span in found.values.items():
        spans.values[path + where] = Span(
            source="<override>", line=1, column=span.column + shift, length=span.length, excerpt=override
        )
    for where, span in found.keys.items():
        spans.keys[path + where] = Span(
            source="<override>", line=1, column=span.column + shift, length=span.length, excerpt=override
        )
    for where, raw in found.texts.items():
        spans.texts[path + where] = raw
    spans.keys[path] = Span(source="<override>", line=1, column=1, length=len(target), excerpt=override)
    here[last] = value


# -- interpolations --------------------------------------------------------------------------------------


def _resolved(document: Document) -> Document:
    """Replace `${...}` in the sections roost reads. Only `cluster` must resolve; OmegaConf does the work."""
    wanted = [
        path for section in SECTIONS for path in _interpolations(document.data.get(section), (section,))
    ]
    if not wanted:
        return document
    from omegaconf import OmegaConf

    data = _deep_copy({key: value for key, value in document.data.items() if key in SECTIONS})
    findings: list[Finding] = []
    try:
        root: Any = OmegaConf.create(_omegaconf_ready(document.data))
    except Exception as error:
        raise ConfigurationError(
            Finding(code="RC006", what=f"{document.name}: {_first_line(error)}")
        ) from None
    for path in wanted:
        try:
            _put(data, path, _get(root, path))
        except Exception as error:  # whatever a resolver raises, it is the configuration that is wrong
            if path[0] == "cluster":
                findings.append(
                    document.finding(
                        "RC006",
                        f"cannot resolve {_get(document.data, path)!r}",
                        path,
                        why=_first_line(error),
                        remedy="define what it refers to, or write the value",
                    )
                )
    if findings:
        raise error_for(findings)
    for path in wanted:
        document.positions.texts.pop(path, None)
    return Document({**document.data, **data}, document.name, document.positions)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def _interpolations(value: Any, path: Path) -> Iterable[Path]:
    if isinstance(value, str):
        if "${" in value or value == "???":
            yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _interpolations(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _interpolations(item, (*path, index))


def _omegaconf_ready(data: dict[str, Any]) -> dict[str, Any]:
    """What OmegaConf accepts: a section holding other objects is dropped rather than refused."""

    def plain(value: Any) -> bool:
        if isinstance(value, dict):
            return all(plain(item) for item in value.values())
        if isinstance(value, list):
            return all(plain(item) for item in value)
        return value is None or isinstance(value, (str, int, float, bool))

    return {key: value for key, value in data.items() if plain(value)}


def _get(root: Any, path: Path) -> Any:
    for step in path:
        root = root[step]
    if type(root).__module__.startswith("omegaconf"):
        from omegaconf import OmegaConf

        return OmegaConf.to_container(root, resolve=True)
    return root


def _put(root: Any, path: Path, value: Any) -> None:
    for step in path[:-1]:
        root = root[step]
    root[path[-1]] = value


def _from_omegaconf(config: Any, overrides: Sequence[str]) -> Document:
    from omegaconf import OmegaConf

    if not OmegaConf.is_dict(config):
        raise ConfigurationError(Finding(code="RC103", what="a job is a DictConfig, not a ListConfig"))
    # Unresolved first: what roost does not read may hold interpolations only the user's code can resolve.
    data = OmegaConf.to_container(config, resolve=False)
    assert isinstance(data, dict)
    parent = config._get_parent()
    if parent is None or overrides:
        return _resolved(apply_overrides(Document(_plain_mapping(data)), overrides))
    resolved = OmegaConf.to_container(config, resolve=True)  # a part of a larger config: its root resolves it
    assert isinstance(resolved, dict)
    return Document(_plain_mapping(resolved))
