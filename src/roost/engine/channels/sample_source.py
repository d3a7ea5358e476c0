"""The sources of samples: JSON lines of a file, an iterable, or an object with `len` and `[]`."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from roost.engine.channels.sample_order import SourceFacts
from roost.errors import ConfigurationError, Finding, shown

MOST = 10_000_000  # samples of an iterable: they are all kept, and an endless one would never be read


class Source(Protocol):
    facts: SourceFacts

    def __getitem__(self, place: int) -> Any: ...


class JsonLines:
    """A file of JSON lines. It is read once, to find the lines; their values are read when they are needed."""

    def __init__(self, path: str) -> None:
        self.path = path
        digest, self._starts = hashlib.sha256(), list[int]()
        findings: list[Finding] = []
        try:
            self._file = Path(path).open("rb")  # noqa: SIM115
            start = 0
            for number, line in enumerate(self._file, 1):
                digest.update(line)
                if line.strip():
                    self._starts.append(start)
                    findings += _line_problem(path, number, line)
                start += len(line)
        except OSError as error:
            raise _unusable(f"{path}: cannot be read", error.strerror or str(error)) from None
        if findings:
            raise ConfigurationError(*findings[:20])
        self.facts = SourceFacts(count=len(self._starts), digest=digest.hexdigest())

    def __getitem__(self, place: int) -> Any:
        self._file.seek(self._starts[place])
        try:
            return json.loads(self._file.readline())
        except ValueError as error:
            raise _unusable(f"{self.path}: the file has changed while it is in use", str(error)) from None


class DatasetSource:
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.facts = SourceFacts(count=len(dataset))

    def __getitem__(self, place: int) -> Any:
        try:
            return self._dataset[place]
        except (IndexError, KeyError) as error:
            raise _unusable(
                f"the source has no sample {place}",
                f"its length is {self.facts.count}, and it raised {type(error).__name__}: {error}",
            ) from error


def prepared(source: Any) -> Any:
    """The source as it travels to the process of a buffer: a path, or an object with `len` and `[]`."""
    if isinstance(source, (str, os.PathLike)):
        return str(Path(source).absolute())
    if (
        hasattr(source, "__len__")
        and hasattr(source, "__getitem__")
        and not isinstance(source, (bytes, dict))
    ):
        return source
    if not isinstance(source, Iterable) or isinstance(source, (bytes, dict)):
        raise _unusable(
            f"{shown(source)} is not a source of samples",
            remedy="give a path of JSON lines, an iterable, or an object with len() and []",
        )
    samples = list(itertools.islice(source, MOST + 1))
    if len(samples) > MOST:
        raise _unusable(
            f"the source has more than {MOST:,} samples",
            "all samples of an iterable are kept",
            "give an object with len() and []",
        )
    return samples


def opened(source: Any) -> Source:
    """Raises if there is nothing in it."""
    found: Source = JsonLines(source) if isinstance(source, str) else DatasetSource(source)
    if not found.facts.count:
        raise _unusable("the source has no samples", source if isinstance(source, str) else "")
    return found


def _line_problem(path: str, number: int, line: bytes) -> list[Finding]:
    try:
        json.loads(line)
    except (ValueError, RecursionError) as error:
        what = f"{path}: line {number} is no JSON value"
        return [Finding(code="RS104", what=what, why=str(error), remedy="was the file cut?")]
    return []


def _unusable(what: str, why: str = "", remedy: str = "") -> ConfigurationError:
    return ConfigurationError(code="RS104", what=what, why=why, remedy=remedy)
