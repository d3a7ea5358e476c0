"""The sources of samples: JSON lines of a file, an iterable, or an object with `len` and `[]`."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.engine.workers.remote_errors import in_one_line
from roost.errors import ConfigurationError, Finding, shown

MOST = 10_000_000  # samples of an iterable, which are all kept, and of one request
MOST_SHOWN = 20  # faulty lines in one error


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """The facts that a saved state must match: the state names samples by their places in the source."""

    count: int
    digest: str | None = None  # of a file's content


class JsonLines:
    """A file of JSON lines. The constructor reads it once to find the lines; each value is read when it is needed."""

    def __init__(self, path: str) -> None:
        self.path = path
        digest, self._starts = hashlib.sha256(), array("Q")
        self._sizes, self._checksums = array("Q"), array("L")
        findings: list[Finding] = []
        try:
            if Path(path).exists() and not Path(path).is_file():  # reading a pipe or a device may never end
                raise OSError(0, "it is not a regular file")
            self._file = Path(path).open("rb")  # noqa: SIM115
            start = 0
            for number, line in enumerate(self._file, 1):
                digest.update(line)
                if line.strip():
                    self._starts.append(start)
                    self._sizes.append(len(line))
                    self._checksums.append(zlib.crc32(line))
                    findings += _line_problem(path, number, line) if len(findings) < MOST_SHOWN else []
                start += len(line)
        except OSError as error:
            raise _unusable(f"{path}: cannot be read", error.strerror or str(error)) from None
        if findings:
            raise ConfigurationError(*findings)
        self.facts = SourceFacts(count=len(self._starts), digest=digest.hexdigest())

    def __getitem__(self, place: int) -> Any:
        line = os.pread(self._file.fileno(), self._sizes[place], self._starts[place])
        if zlib.crc32(line) != self._checksums[place]:
            raise _unusable(
                f"{self.path}: the file has changed while it is in use",
                f"sample {place} is no longer where it was",
                "put the old content back, or start the job anew",
            )
        return json.loads(line)


class DatasetSource:
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.facts = SourceFacts(count=len(dataset))

    def __getitem__(self, place: int) -> Any:
        try:
            return self._dataset[place]
        except (IndexError, KeyError) as error:
            why = f"its length is {self.facts.count}, and it raised {in_one_line(error)[:500]}"
            raise _unusable(f"the source has no sample {place}", why) from error
        except Exception as error:
            raise _unusable(f"the source raised at sample {place}", in_one_line(error)[:500]) from error


def prepared(source: Any) -> Any:
    """The source in the form sent to the buffer's process: a path, or an object with `len` and `[]`."""
    if isinstance(source, (str, os.PathLike)):
        return str(Path(source).absolute())
    usable = not isinstance(source, (bytes, dict))
    if usable and hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        try:
            len(source)
        except Exception as error:
            raise _unusable(
                f"the source {shown(source)} does not tell its length",
                f"{type(error).__name__}: {error}",
                "give an object with len() and [], or an iterable that ends",
            ) from error
        return source
    if not usable or not isinstance(source, Iterable):
        raise _unusable(
            f"{shown(source)} is not a source of samples",
            remedy="give a path of JSON lines, an iterable, or an object with len() and []",
        )
    if isinstance(source, (set, frozenset)):
        raise _unusable(
            f"a {type(source).__name__} is not a source of samples",
            "its order changes from run to run",
            "give a list, such as sorted(...) of it",
        )
    samples = list(itertools.islice(source, MOST + 1))
    if len(samples) > MOST:
        raise _unusable(
            f"the source has more than {MOST:,} samples",
            "all samples of an iterable are kept",
            "give an object with len() and []",
        )
    return samples


def opened(source: Any) -> JsonLines | DatasetSource:
    """Open the source. Raises if it has no samples."""
    found = JsonLines(source) if isinstance(source, str) else DatasetSource(source)
    if not found.facts.count:
        raise _unusable("the source has no samples", source if isinstance(source, str) else "")
    return found


def _line_problem(path: str, number: int, line: bytes) -> list[Finding]:
    try:
        json.loads(line)
    except (ValueError, RecursionError) as error:
        what = f"{path}: line {number} is no JSON value"
        why = (
            f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        )
        return [Finding(code="RS104", what=what, why=why, remedy="was the file cut?")]
    return []


def _unusable(what: str, why: str = "", remedy: str = "") -> ConfigurationError:
    return ConfigurationError(code="RS104", what=what, why=why, remedy=remedy)
