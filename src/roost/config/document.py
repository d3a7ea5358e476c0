"""A `Document`: a configuration as plain data, with the position of each key and value in its file.

`load` makes one from a file, a dict or an OmegaConf `DictConfig`, with `key=value` overrides on top.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from roost.config.overrides import overridden
from roost.config.plain_data import SECTIONS, interpolations, plain_mapping
from roost.config.text_files import A_JOB, is_pipe, read_mapping, read_text, shown_name
from roost.config.yaml_text import MAX_BYTES, MAX_VALUES, Positions
from roost.errors import ConfigurationError, Finding, Path, Span, first_line
from roost.secret_names import SecretText

NAMELESS = "<config>"
_LEAST = 4  # characters of a secret that is hidden wherever a message has them: fewer are in many words


@dataclass(frozen=True, slots=True)
class Document:
    data: dict[str, Any]
    name: str = NAMELESS
    positions: Positions = field(default_factory=Positions)

    def __repr__(self) -> str:  # the data may hold secrets, and reprs end up in logs
        return f"Document({self.name})"

    @property
    def file_name(self) -> str:
        """The name of the document's file, without directories; empty if there is none."""
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
        if path in self.positions.secrets:
            return SecretText(value)
        written = self.positions.texts.get(path)
        return str(value) if written is None else written

    def marked(self, value: Any, path: Path) -> Any:
        """The value, with the secrets in it as texts that are neither shown nor saved."""
        if isinstance(value, Mapping):
            return {key: self.marked(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.marked(item, (*path, index)) for index, item in enumerate(value)]
        return SecretText(value) if path in self.positions.secrets else value

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
        where = self.key_span(path) if key else self.part_span(path, part)
        if where is None and self.name != NAMELESS and not self.data:
            where = Span(source=self.name, line=1, column=1, length=1)  # an empty file
        if self.positions.secrets:
            what, why, remedy = self._without_secrets(path, (what, why, remedy))
        return Finding(code=code, what=what, why=why, remedy=remedy, path=path, where=where)

    def _without_secrets(self, path: Path, texts: Sequence[str]) -> Iterator[str]:
        """Texts about this path without the values of secrets; if its value is one, without any word of it."""
        secrets, said = self.positions.secrets, "\n".join(texts)
        whole = [secret for secret in secrets.values() if len(secret) >= _LEAST and secret in said]
        whole.sort(key=len, reverse=True)  # a secret may hold another one
        own = next((secrets[path[:stop]] for stop in range(len(path) + 1) if path[:stop] in secrets), "")
        words = own + repr(own)

        def hidden(word: re.Match[str]) -> str:
            return "***" if word[0] == own or (len(word[0]) >= _LEAST and word[0] in words) else word[0]

        for text in texts:
            for secret in whole:
                text = text.replace(secret, "***")
            yield re.sub(r"\w+", hidden, text) if own else text

    def part_span(self, path: Path, part: tuple[int, int] | None = None) -> Span | None:
        """The position of a value, or of a part of it: its start and length in the text."""
        where = self.value_span(path) or self.key_span(path)
        if where is None or part is None or part[0] + part[1] > where.length:
            return where
        return where.part(*part) if self._stands_at(where, path) else where

    def restated(self, problem: Finding, subject: str, path: Path, **place: Any) -> Finding:
        """The finding of code that does not know the document, with a subject and a position added."""
        what, why, remedy = f"{subject}: {problem.what}", problem.why, problem.remedy
        return self.finding(problem.code, what, path, why=why, remedy=remedy, **place)

    def _stands_at(self, where: Span, path: Path) -> bool:
        """Whether the span shows the value's own text: not folded, not escaped, not a reference to it."""
        if where is not self.positions.values.get(path):
            return False  # `where` is the span of the key, or of a section around the value
        value: Any = self.data
        for step in path:
            value = value[step]
        return self.text(path, value).rstrip() == where.excerpt[where.column - 1 :][: where.length]

    def findings_in(
        self, path: Path, subject: str, problems: Iterable[tuple[Finding, int, int]]
    ) -> list[Finding]:
        """Findings for the text at this path. Each problem comes with its start and length in the text."""
        return [
            self.restated(problem, subject, path, part=(start, length)) for problem, start, length in problems
        ]


class Findings(list[Finding]):
    """Collects the findings about a document."""

    def __init__(self, document: Document, found: Iterable[Finding] = ()) -> None:
        super().__init__(found)
        self.document = document

    def add(self, code: str, what: str, path: Path, **more: Any) -> None:
        """Takes the arguments of `Document.finding`."""
        self.append(self.document.finding(code, what, path, **more))


class JobFile(os.PathLike[str]):
    """The file of a job, and the directory where Hydra also finds its configs. It is read once: it may be a pipe."""

    def __init__(self, path: str | os.PathLike[str], config_dir: str | None = None) -> None:
        self.path, self.config_dir = FilePath(path), config_dir

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return shown_name(self.path)

    @functools.cached_property
    def text(self) -> str:
        return read_text(self.path, MAX_BYTES)

    def composed(self, overrides: Sequence[str]) -> tuple[dict[str, Any], Positions]:
        """The data that Hydra composes from the file. A file in the config directory is named relative to it."""
        file, config_dir = self.path, self.config_dir
        if is_pipe(file) and config_dir is None:
            what = f"{self}: a job from a pipe has no directory to find its `defaults` in"
            raise ConfigurationError(code="RC008", what=what, remedy="name it with --config-dir")
        if config_dir is not None and not FilePath(config_dir).is_dir():
            what = f"{config_dir}: there is no such directory"
            raise ConfigurationError(code="RC008", what=what, remedy="check --config-dir")
        directory, more, name = str(file.parent), config_dir, "stdin"
        inside = FilePath(os.path.abspath(file)).is_relative_to(os.path.abspath(config_dir or "."))  # noqa: PTH100
        if config_dir is not None and (inside or is_pipe(file)):
            directory, more = config_dir, None
        if not is_pipe(file):
            name = FilePath(os.path.relpath(file, directory)).with_suffix("").as_posix()
        try:
            from roost.config.hydra_composition import Primary, composed
        except ImportError as error:
            what, remedy = f"{self}: Hydra is needed to compose its `defaults`", "pip install 'roost[hydra]'"
            raise ConfigurationError(code="RC008", what=what, why=first_line(error), remedy=remedy) from None
        primary = Primary(text=self.text, file=str(self), directory=directory, name=name, more=more)
        return composed(primary, overrides)


def load(source: Any, overrides: Sequence[str] = (), inside: Path = ()) -> Document:
    """Read a path, dict, `DictConfig` or `Document`, apply overrides, and resolve interpolations.

    `inside` is the path of the source in the job: ("cluster",) if it is `cfg.cluster`.
    """
    overrides = [overrides] if isinstance(overrides, str) else overrides
    whole: dict[str, Any] | None = None
    at: Path = ()
    if type(source).__module__.startswith("omegaconf"):  # before Mapping: a DictConfig is a Mapping too
        from roost.config.interpolation import mapping, unresolved

        source, whole, at = unresolved(source)
        if not inside:
            source = mapping(source)
        elif isinstance(source, dict) and not at:
            whole = source
    for step in reversed(inside):
        source = {step: source}
    if isinstance(source, Document):
        document = source
    elif isinstance(source, (str, os.PathLike)):
        document, overrides = as_written(source, overrides), ()
    elif isinstance(source, Mapping):
        document = Document(plain_mapping(source))
    else:
        what = f"a job is a path, a dict or a DictConfig, not {type(source).__name__}"
        raise ConfigurationError(code="RC103", what=what)
    data, positions = document.data, document.positions
    if overrides:
        data, positions = overridden(data, positions, overrides)
    if any(True for section in SECTIONS for _ in interpolations(data.get(section), ())):
        from roost.config.interpolation import resolve

        data, positions = resolve(data, positions, whole, at, inside=inside)
    return Document(data, document.name, positions)


def as_written(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Document:
    """A file with its overrides applied, and its interpolations left as they are.

    Hydra composes a file with a `defaults` list, and any file that comes with a config directory.
    """
    file = path if isinstance(path, JobFile) else JobFile(path)
    data, positions = read_mapping(file.text, str(file))
    if file.config_dir is not None or isinstance(data.get("defaults"), list):
        data, positions = file.composed(overrides)
        data = plain_mapping(data)
    elif overrides:
        data, positions = overridden(data, positions, overrides)
    return Document(data, str(file), positions)


def read_file(
    path: FilePath, max_bytes: int = MAX_BYTES, max_values: int = MAX_VALUES, wanted: tuple[str, str] = A_JOB
) -> Document:
    return parse(read_text(path, max_bytes), shown_name(path), max_values, wanted)


def parse(
    text: str, name: str = "<text>", max_values: int = MAX_VALUES, wanted: tuple[str, str] = A_JOB
) -> Document:
    """The document of a YAML text. If the text is no mapping, the error has the words of `wanted`: what, remedy."""
    data, positions = read_mapping(text, name, max_values, wanted)
    return Document(data, name, positions)
