"""The folder of a job, on the node of its managers, and the history in it.

It is `ROOST_STATE/jobs/JOB`, by default below `~/.local/state/roost`, and only its owner can read it. A job's name has
no slash and is never `.` or `..`, and roost follows no link, so it writes nothing elsewhere.
"""

# The job's managers import this, and pathlib takes long to import.
# ruff: noqa: PTH100, PTH103, PTH111, PTH118, PTH120

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from roost.engine.connection.listening import listens
from roost.engine.events import Event
from roost.engine.health.machine_inspection import is_in_use
from roost.engine.processes.process_facts import Process
from roost.errors import ClusterError

EVENTS = "events.jsonl"
PROCESSES = "processes.jsonl"
MOST_ASKED = 20  # jobs, the latest first
_LINE = 4_096  # bytes; few events are longer
_MOST_READ = 64 * 1024 * 1024  # bytes of a file
_END_OF_TIME = 253_402_300_800  # the end of the year 9999, in seconds since the epoch


def jobs_folder() -> str:
    root = os.environ.get("ROOST_STATE") or os.path.join(os.path.expanduser("~"), ".local", "state", "roost")
    return os.path.join(os.path.abspath(root), "jobs")


def job_folder(job: str) -> str:
    return os.path.join(jobs_folder(), job)


def past_jobs() -> list[str]:
    """The jobs whose history is on this machine, the latest first."""
    written: dict[str, float] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(jobs_folder()):  # noqa: PTH208
            with contextlib.suppress(OSError):
                written[name] = os.lstat(os.path.join(job_folder(name), EVENTS)).st_mtime
    return sorted(written, key=lambda name: -written[name])


def read_history(job: str, most: int = 1_000) -> list[Event]:
    """The last events of a job, from its folder on this machine. Skips lines that are no events."""
    found: list[Event] = []
    for line in (_last_lines(job, EVENTS, most * _LINE) or [])[-most:]:
        data = _mapping_in(line)
        if _is_event(data):
            found.append(Event(**data))
    return found


def _mapping_in(line: bytes) -> dict[str, Any]:
    """The JSON object in a line; empty if there is none."""
    with contextlib.suppress(ValueError, RecursionError):
        data = json.loads(line)
        if isinstance(data, dict):
            return data
    return {}


def _is_event(data: Mapping[str, Any]) -> bool:
    return (
        {"action"} <= data.keys() <= _EVENT_FIELDS
        and all(isinstance(data.get(name, ""), str) for name in ("action", "component", "cause", "detail"))
        and all(type(data.get(name)) in (int, type(None)) for name in ("rank", "node"))
        and type(data.get("time", 0)) in (int, float)
        and 0 <= data.get("time", 0) < _END_OF_TIME
    )


def _is_process(data: Mapping[str, Any]) -> bool:
    return (
        data.keys() == _PROCESS_FIELDS
        and all(isinstance(data[name], str) for name in ("component", "node_id", "host"))
        and all(type(data[name]) is int for name in ("rank", "generation", "node", "pid", "started"))
        and isinstance(data["logs"], list)
        and all(isinstance(path, str) for path in data["logs"])
    )


def _last_lines(job: str, name: str, most: int) -> list[bytes] | None:
    """The lines in the last bytes of a file of the job's folder; None if it cannot be read."""
    try:
        opened = _opened(os.path.join(job_folder(job), name), os.O_RDONLY)
        with open(opened, "rb") as file:  # noqa: PTH123
            file.seek(max(0, os.fstat(opened).st_size - most))
            return file.read(most).splitlines()
    except OSError:
        return None


def _opened(path: str, flags: int, folder: int | None = None) -> int:
    """The descriptor of a regular file. A pipe is refused: opening one would wait for its other end."""
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    opened = os.open(path, flags, mode=0o600, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError("it is not a regular file")
    return opened


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedProcess:
    """A process that the job has started."""

    component: str  # the name of its worker group
    rank: int
    generation: int
    node: int  # its rank in the job
    node_id: str
    host: str
    pid: int
    started: int  # clock ticks after the boot
    logs: tuple[str, ...] = ()  # the files for its errors and its output

    @property
    def key(self) -> tuple[str, int, int]:
        return self.component, self.rank, self.generation

    @property
    def name(self) -> str:
        """`actor:3`, or `actor:3+1` after one restart."""
        again = f"+{self.generation}" if self.generation else ""
        return f"{self.component}:{self.rank}{again}"

    @property
    def process(self) -> Process:
        return Process(pid=self.pid, started=self.started)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StartedProcess:
        return cls(**{**data, "logs": tuple(data["logs"])})


_EVENT_FIELDS = {one.name for one in fields(Event)}
_PROCESS_FIELDS = {one.name for one in fields(StartedProcess)}


class JobHistory:
    """Writes events and processes as lines of JSON. If the folder cannot be written, it does nothing."""

    def __init__(self, job: str) -> None:
        self._files: dict[str, int] = {}
        self._torn: set[str] = set()  # files whose last line has no end, as after a full disk
        with contextlib.suppress(OSError):
            folder = job_folder(job)
            os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, mode=0o700)  # noqa: PTH102
            found = os.lstat(folder)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                return  # a link, or another user's folder
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                for name in (EVENTS, PROCESSES):
                    with contextlib.suppress(OSError):
                        self._open(name, opened)
            finally:
                os.close(opened)

    def _open(self, name: str, folder: int) -> None:
        file = self._files[name] = _opened(name, os.O_RDWR | os.O_APPEND | os.O_CREAT, folder)
        with contextlib.suppress(OSError):  # not every file system has locks
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # tells `roost doctor` that the job runs
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            self._torn.add(name)

    def write(self, event: Event) -> None:
        self._write(EVENTS, event.to_dict())

    def write_start(self, run: Mapping[str, Any]) -> None:
        """Begin a new run of the job. The lines of its processes follow."""
        self._write(PROCESSES, {"run": dict(run)})

    def write_process(self, process: StartedProcess) -> None:
        self._write(PROCESSES, process.to_dict())

    def _write(self, file: str, data: Mapping[str, Any]) -> None:
        if file in self._files:
            line = (json.dumps(data) + "\n").encode()
            if file in self._torn:
                line = b"\n" + line
            with contextlib.suppress(OSError):
                written = os.write(self._files[file], line)
                self._torn.discard(file)
                if written < len(line):
                    self._torn.add(file)


def read_processes(job: str) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """The last run of a job and its processes, from its folder on this node; None if there are none."""
    lines = _last_lines(job, PROCESSES, _MOST_READ)
    if lines is None:
        return None
    run: dict[str, Any] = {}
    processes: list[dict[str, Any]] = []
    for line in lines:
        data = _mapping_in(line)  # if the machine failed, a line may be cut off
        if isinstance(data.get("run"), dict):
            run, processes = data["run"], []
        elif _is_process(data):
            processes.append(data)
    return run, processes


def address_of(job: str) -> str | None:
    """The address of the Ray of a job's last run, if something answers there.

    The address of an embedded Ray is written nowhere else than in the job's folder.
    """
    found = read_processes(job)
    address = str(found[0].get("address", "")) if found is not None else ""
    return address if listens(address) else None


def address_elsewhere(job: str, asked: str | None) -> str | None:
    """Where a job of this machine runs, if that is another Ray than the asked one."""
    where = address_of(job) if is_in_use(os.path.join(job_folder(job), EVENTS)) else None
    return where if where != asked else None


def check_not_elsewhere(job: str, asked: str) -> None:
    """Raise if the job runs on another Ray than the asked one, which knows nothing of it."""
    if (where := address_elsewhere(job, asked)) is not None:
        raise ClusterError(
            code="RE106",
            what=f"job {job!r} does not run on the Ray at {asked}",
            why=f"it runs on the Ray at {where}",
            remedy=f"--address {where}",
        )


def latest_address() -> str | None:
    """The address of the Ray of this machine's latest job whose Ray answers."""
    return next((address for job in past_jobs()[:MOST_ASKED] if (address := address_of(job))), None)
