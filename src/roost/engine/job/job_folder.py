"""The folder of a job, on the node of its managers, and the history that is written there.

It is `ROOST_STATE/jobs/JOB`, by default below `~/.local/state/roost`, and only its owner can read it. A job's name has
no slash and is never `.` or `..`, and no link is followed, so nothing is written elsewhere.
"""

# The job's managers import this, and pathlib takes long to import.
# ruff: noqa: PTH100, PTH103, PTH111, PTH118, PTH120

from __future__ import annotations

import contextlib
import json
import os
import stat

from roost.engine.events import Event

EVENTS = "events.jsonl"
_LINE = 4_096  # bytes; few events are longer


def job_folder(job: str) -> str:
    root = os.environ.get("ROOST_STATE") or os.path.join(os.path.expanduser("~"), ".local", "state", "roost")
    return os.path.join(os.path.abspath(root), "jobs", job)


def past_jobs() -> list[str]:
    """The jobs whose history is on this machine, the latest first."""
    root = os.path.dirname(job_folder("any"))
    written: dict[str, float] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(root):  # noqa: PTH208
            with contextlib.suppress(OSError):
                written[name] = os.lstat(os.path.join(root, name, EVENTS)).st_mtime
    return sorted(written, key=lambda name: -written[name])


def read_history(job: str, most: int = 1_000) -> list[Event]:
    """The last events of a job, from its folder on this machine. Lines that are no events are left out."""
    found: list[Event] = []
    try:
        file = os.open(os.path.join(job_folder(job), EVENTS), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    with open(file, "rb") as lines:  # noqa: PTH123
        lines.seek(max(0, os.fstat(file).st_size - most * _LINE))
        for line in lines.read().splitlines()[-most:]:
            with contextlib.suppress(ValueError, TypeError):
                found.append(Event(**json.loads(line)))
    return found


class JobHistory:
    """Writes events as lines of JSON. A folder that cannot be written is no reason to fail."""

    def __init__(self, job: str) -> None:
        self._file = -1
        with contextlib.suppress(OSError):
            folder = job_folder(job)
            os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, mode=0o700)  # noqa: PTH102
            found = os.lstat(folder)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                return  # a link, or another user's
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                self._file = os.open(EVENTS, flags, mode=0o600, dir_fd=opened)
            finally:
                os.close(opened)

    def write(self, event: Event) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.write(self._file, (json.dumps(event.to_dict()) + "\n").encode())
