"""Reading the log files of processes of this node, in bounded pieces."""

# The agents of a job import this, and pathlib takes long to import.
# ruff: noqa: PTH110, PTH118, PTH119, PTH120, PTH123, PTH208

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

NOISE = (":job_id:", ":actor_name:", ":task_name:")  # how lines begin that Ray writes for itself
BLOCKING = (
    "Using blocking ray.get inside async actor"  # Ray's warning, which a plain use of a channel brings too
)
PIECE = 64 * 1024  # bytes of one file in one answer
ANSWER = 1024 * 1024  # bytes of all files in one answer
LONGEST = 1024 * 1024  # bytes of a line
_BLOCK = 64 * 1024
_MOST_BACK = 16 * 1024 * 1024  # bytes in which the last lines are looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPosition:
    """How far a log file has been read."""

    path: str
    offset: int = 0
    tail: int | None = None  # begin so many lines before the end; None: begin at the offset


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Part of a log file. `next` continues after it."""

    next: LogPosition
    data: bytes = b""
    size: int = 0  # of the file
    problem: str = ""  # why the file cannot be read


class LineCutter:
    """Cuts the pieces of a log into lines."""

    def __init__(self) -> None:
        self._begun = b""  # a line without its end

    def lines(self, data: bytes) -> Iterator[str]:
        """The lines that this piece completes, without Ray's own. Cuts a very long line into parts."""
        *whole, self._begun = (self._begun + data).split(b"\n")
        if len(self._begun) > LONGEST:
            whole.append(self._begun)
            self._begun = b""
        yield from _said(whole)

    def rest(self) -> Iterator[str]:
        """The last line, if it has no end."""
        begun, self._begun = self._begun, b""
        if begun:
            yield from _said([begun])


def _said(lines: Iterable[bytes]) -> Iterator[str]:
    texts = (line.decode(errors="replace").rstrip("\r") for line in lines)
    return (text for text in texts if not text.startswith(NOISE))


def read_logs(positions: Sequence[LogPosition]) -> list[LogPiece]:
    """A piece of each file; an empty piece if the answer has no room left."""
    room, found = ANSWER, []
    for position in positions:
        found.append(_read(position, min(PIECE, room)))
        room -= len(found[-1].data)
    return found


def _read(position: LogPosition, most: int) -> LogPiece:
    try:
        with open(_place_of(position.path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = position.offset
            if position.tail is not None:
                start = _start_of_last_lines(file, size, position.tail)
            if start > size:  # the file was emptied
                start = 0
            file.seek(start)
            data = file.read(most)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return LogPiece(next=position, problem=reason)
    return LogPiece(next=replace(position, offset=start + len(data), tail=None), data=data, size=size)


def _place_of(path: str) -> str:
    """Where the file is now: Ray moves the logs of ended processes once a node has 200 logs."""
    moved = os.path.join(os.path.dirname(path), "old", os.path.basename(path))
    return moved if not os.path.exists(path) and os.path.exists(moved) else path


def _start_of_last_lines(file: object, size: int, lines: int) -> int:
    """The offset at which the last lines begin. A last line without its end counts."""
    if lines <= 0:
        return size
    at, missing, floor = size, lines + 1, max(0, size - _MOST_BACK)
    while at > floor:
        begin = max(floor, at - _BLOCK)
        file.seek(begin)  # type: ignore[attr-defined]
        block: bytes = file.read(at - begin)  # type: ignore[attr-defined]
        if at == size and not block.endswith(b"\n"):
            missing -= 1
        count = block.count(b"\n")
        if count >= missing:
            for _ in range(missing):
                block = block[: block.rindex(b"\n")]
            return begin + len(block) + 1
        missing, at = missing - count, begin
    return floor


def logs_of(pid: int, folder: str) -> tuple[str, ...]:
    """The files of the errors and output of a living Ray process. If those are no files, those named after its pid.

    Whoever reads a named pipe or a terminal would wait for it.
    """
    found = []
    for descriptor, ending in ((2, "err"), (1, "out")):
        try:
            opened = os.readlink(f"/proc/{pid}/fd/{descriptor}")  # noqa: PTH115
        except OSError:
            opened = ""
        found.append(opened if os.path.isfile(opened) else _named_after(pid, ending, folder))  # noqa: PTH113
    return tuple(found)


def _named_after(pid: int, ending: str, folder: str) -> str:
    try:
        names = [
            os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(f"-{pid}.{ending}")
        ]
        return max(names, key=lambda name: os.stat(name).st_mtime, default="")  # noqa: PTH116
    except OSError:
        return ""
