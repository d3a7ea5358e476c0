"""Reads the text of files, of standard input and of the pipes of a shell, and YAML mappings in such texts."""

from __future__ import annotations

import os
import re
import select
from pathlib import Path as FilePath
from typing import Any

from roost.config.yaml_text import MAX_VALUES, Positions, read_yaml
from roost.errors import ConfigurationError

A_JOB = ("a job is a mapping of sections", "start with `cluster:`")
MAX_SILENCE = 60.0  # seconds that a pipe may bring nothing
_DESCRIPTOR = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/(\d{1,9})")


def shown_name(path: FilePath) -> str:
    return "<stdin>" if str(path) == "-" else str(path)


def is_pipe(path: FilePath) -> bool:
    """Whether the path is standard input or a descriptor of this process, as `<(...)` of a shell is."""
    return str(path) == "-" or bool(_DESCRIPTOR.fullmatch(str(path)))


def read_text(path: FilePath, max_bytes: int) -> str:
    """The text of at most `max_bytes` of a regular file, of `-` or of a pipe that the shell opened.

    Refuses other pipes, because opening one may block, and devices, because they may never end.
    """
    name = shown_name(path)
    try:
        content = _content(FilePath("/dev/stdin") if name == "<stdin>" else path, max_bytes + 1)
        if len(content) > max_bytes:
            what = f"{name}: larger than {max_bytes:,} bytes"
            raise ConfigurationError(code="RC004", what=what, remedy="is this the right file?")
        return content.decode("utf-8-sig")
    except ConfigurationError:
        raise
    except (OSError, ValueError) as error:
        why, remedy = str(getattr(error, "strerror", None) or "it is not a path"), "check the path"
        if isinstance(error, UnicodeDecodeError):
            line = content[: error.start].count(b"\n") + 1
            why, remedy = f"line {line} is not UTF-8 text", "save it as UTF-8 in your editor"
        what = f"{name}: cannot be read"
        raise ConfigurationError(code="RC001", what=what, why=why, remedy=remedy) from None


def _content(path: FilePath, size: int) -> bytes:
    descriptor = _DESCRIPTOR.fullmatch(str(path))
    if descriptor and not path.is_file() and not path.is_dir():
        return _received(int(descriptor[1] or 0), size)
    if not path.is_file() and path.exists():
        raise IsADirectoryError(0, "it is not a regular file")
    with path.open("rb") as file:
        return file.read(size)


def _received(descriptor: int, size: int) -> bytes:
    """The bytes of a descriptor up to its end, at most `size`."""
    ready = select.poll()
    ready.register(descriptor, select.POLLIN)
    content = b""
    while len(content) < size:
        if not ready.poll(MAX_SILENCE * 1000):
            raise TimeoutError(0, f"nothing came from it for {MAX_SILENCE:.0f} seconds")
        piece = os.read(descriptor, min(size - len(content), 1 << 16))
        if not piece:
            break
        content += piece
    return content


def read_mapping(
    text: str, name: str, max_values: int = MAX_VALUES, wanted: tuple[str, str] = A_JOB
) -> tuple[dict[str, Any], Positions]:
    """The data and positions of a YAML text. If it is no mapping, the error has the words of `wanted`: what, remedy."""
    data, positions = read_yaml(text.removeprefix("\ufeff"), name, max_values)
    data = {} if data is None else data
    if not isinstance(data, dict):
        where = positions.values.get(())
        raise ConfigurationError(code="RC103", what=wanted[0], where=where, remedy=wanted[1])
    return data, positions
