"""A `Document`: a configuration as plain data, with the position of each key and value in its file.

`load` makes one from a file, a dict or an OmegaConf `DictConfig`, with `key=value` overrides on top.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from roost.config.interpolation import resolve, unresolved
from roost.config.overrides import overridden
from roost.config.plain_data import plain_mapping
from roost.config.yaml_text import MAX_BYTES, MAX_VALUES, Positions, read_yaml
from roost.errors import ConfigurationError, Finding, Path, Span, error_for

NAMELESS = "<config>"
A_JOB = ("a job is a mapping of sections", "start with `cluster:`")


@dataclass(frozen=True, slots=True)
class Document:
    data: dict[str, Any]
    name: str = NAMELESS
    positions: Positions = field(default_factory=Positions)

    def __repr__(self) -> str:  # the data may hold secrets, and reprs end up in logs
        return f"Document({self.name})"

    @property
    def file_name(self) -> str:
        """The name of the file it was read from, without its directories; empty where there was none."""
        return "" if self.name.startswith("<") else FilePath(self.name).name

    def value_span(self, path: Path) -> Span | None:
        return self.positions.values.get(path) or self.positions.keys.get(path)

    def key_span(self, path: Path) -> Span | None:
        """The position of the key at this path, or of the nearest written section around it."""
        for stop in range(len(path), -1, -1):
            span = self.positions.keys.get(path[:stop]) or self.positions.values.get(path[:stop])
            if span is not None:
                return span
        return None

    def text(self, path: Path, value: Any) -> str:
        """A scalar as its author wrote it, if the file's text is known; else its value as text."""
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
        if where is None and self.name != NAMELESS and not self.data:
            where = Span(source=self.name, line=1, column=1, length=1, excerpt="")  # an empty file
        if where is not None and part is not None and part[0] + part[1] <= where.length:
            where = where.part(*part) if self._stands_at(where, path) else where
        return Finding(code=code, what=what, why=why, remedy=remedy, path=path, where=where)

    def _stands_at(self, where: Span, path: Path) -> bool:
        """Whether the span shows the value's own text: not folded, not escaped, not a reference to it."""
        if where is not self.positions.values.get(path):
            return False  # it is the span of the key, or of a section around the value
        value: Any = self.data
        for step in path:
            value = value[step]
        return self.text(path, value).rstrip() == where.excerpt[where.column - 1 :][: where.length]

    def findings_in(
        self, path: Path, subject: str, problems: Iterable[tuple[Finding, int, int]]
    ) -> list[Finding]:
        """Findings for the text at this path. Each problem comes with its start and length in the text."""
        return [
            self.finding(
                problem.code,
                f"{subject}: {problem.what}",
                path,
                why=problem.why,
                remedy=problem.remedy,
                part=(start, length),
            )
            for problem, start, length in problems
        ]


def load(source: Any, overrides: Sequence[str] = ()) -> Document:
    """Read a path, dict, `DictConfig` or `Document`, apply overrides, and resolve interpolations."""
    overrides = [overrides] if isinstance(overrides, str) else overrides
    whole: dict[str, Any] | None = None
    at: Path = ()
    if type(source).__module__.startswith("omegaconf"):  # asked before Mapping: a DictConfig is a Mapping too
        data, whole, at = unresolved(source)
        document = Document(plain_mapping(data))
    elif isinstance(source, Document):
        document = source
    elif isinstance(source, (str, os.PathLike)):
        document = read_file(FilePath(source))
    elif isinstance(source, Mapping):
        document = Document(plain_mapping(source))
    else:
        raise ConfigurationError(
            Finding(
                code="RC103", what=f"a job is a path, a dict or a DictConfig, not {type(source).__name__}"
            )
        )
    data, positions = document.data, document.positions
    if overrides:
        data, positions = overridden(data, positions, overrides)
    data, positions = resolve(data, positions, whole, at)
    return Document(data, document.name, positions)


def read_file(
    path: FilePath, max_bytes: int = MAX_BYTES, max_values: int = MAX_VALUES, wanted: tuple[str, str] = A_JOB
) -> Document:
    return parse(read_text(path, max_bytes), str(path), max_values, wanted)


def read_text(path: FilePath, max_bytes: int) -> str:
    """The text of a regular file of at most `max_bytes`: a pipe would block, a device may never end."""
    try:
        if not path.is_file() and path.exists():
            raise IsADirectoryError(0, "it is not a regular file")
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ConfigurationError(
                Finding(
                    code="RC004",
                    what=f"{path}: larger than {max_bytes:,} bytes",
                    remedy="is this the right file?",
                )
            )
        return content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigurationError):
            raise
        reason, remedy = getattr(error, "strerror", None) or "it is not a path", "check the path"
        if isinstance(error, UnicodeDecodeError):
            line = content[: error.start].count(b"\n") + 1
            reason, remedy = f"line {line} is not UTF-8 text", "save it as UTF-8 in your editor"
        raise ConfigurationError(
            Finding(code="RC001", what=f"{path}: cannot be read", why=str(reason), remedy=remedy)
        ) from None


def parse(
    text: str, name: str = "<text>", max_values: int = MAX_VALUES, wanted: tuple[str, str] = A_JOB
) -> Document:
    """The document of a YAML text. If it is no mapping, the error says what `wanted` holds: what, remedy."""
    data, positions, findings = read_yaml(text.removeprefix("\ufeff"), name, max_values)
    if findings:
        raise error_for(findings)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        where = positions.values.get(())
        raise ConfigurationError(Finding(code="RC103", what=wanted[0], where=where, remedy=wanted[1]))
    return Document(data, name, positions)
