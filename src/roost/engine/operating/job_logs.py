"""The logs of a job's processes, from every node, line by line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from roost.engine.health.diagnosis import listed
from roost.engine.job.job_folder import StartedProcess
from roost.engine.operating.job_access import JobAccess
from roost.engine.processes.log_files import LineCutter, LogPiece, LogPosition
from roost.errors import ClusterError, ClusterGone, Finding, counted

REFRESH_EVERY = 1.0  # seconds between two searches for new processes
ASK_FOR = 2.0  # seconds that an agent waits for new lines before it answers
STREAMS = ("err", "out")  # the order of StartedProcess.logs


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    process: StartedProcess
    stream: str  # "out" or "err"
    text: str


@dataclass(slots=True, kw_only=True)
class _LogFile:
    process: StartedProcess
    stream: str
    position: LogPosition
    cutter: LineCutter = field(default_factory=LineCutter)
    problem: str = ""

    def take(self, piece: LogPiece) -> Iterator[LogLine]:
        """The lines that a piece completes."""
        self.position, self.problem = piece.next, piece.problem
        yield from map(self._line, self.cutter.lines(piece.data))

    def flush(self) -> Iterator[LogLine]:
        yield from map(self._line, self.cutter.rest())

    def _line(self, text: str) -> LogLine:
        return LogLine(process=self.process, stream=self.stream, text=text)


@dataclass(kw_only=True)
class JobLogs:
    """`chosen` picks the processes, `streams` their output or errors, `tail` the last lines of each file."""

    access: JobAccess
    chosen: Callable[[StartedProcess], bool]
    streams: Sequence[str] = STREAMS
    tail: int | None = None
    _files: dict[tuple[Any, ...], _LogFile] = field(default_factory=dict)

    def read(self, unfinished: bool = True) -> Iterator[LogLine]:
        """The lines written so far, process by process. `unfinished` includes a last line without an end."""
        self._find(self.tail)
        files = list(self._files.values())
        first = self._pieces(files)
        for file, piece in zip(files, first, strict=True):
            if piece is None:
                self.access.check_stays()
                file.problem = f"{file.process.host} does not answer"
                continue
            end = piece.size  # a process may write faster than this reads
            yield from file.take(piece)
            while not file.problem and file.position.offset < end:
                (following,) = self._pieces([file])
                if following is None:
                    file.problem = f"{file.process.host} does not answer"
                    break
                yield from file.take(following)
            if unfinished:
                yield from file.flush()

    def _pieces(self, files: Sequence[_LogFile]) -> list[LogPiece | None]:
        return self.access.ask_about("read_logs", [(one.process.node_id, one.position) for one in files])

    def follow(self) -> Iterator[LogLine]:
        """The lines written so far, and then new lines until the job ends. Follows restarted processes too."""
        yield from self.read(unfinished=not self.access.running)
        asked: dict[Any, tuple[str, list[_LogFile]]] = {}
        looked = time.monotonic()
        while self.access.running:
            try:
                if time.monotonic() - looked >= REFRESH_EVERY:
                    looked = time.monotonic()
                    self._find(None)
                self._ask_nodes(asked)
            except ClusterError:  # the job's manager is gone, and the job with it
                break
            ready, _ = ray.wait(list(asked), num_returns=1, timeout=REFRESH_EVERY) if asked else ([], [])
            if not asked:
                time.sleep(REFRESH_EVERY)
            for ref in ready:
                node, files = asked.pop(ref)
                try:
                    pieces = ray.get(ref)
                except ray.exceptions.RayError:  # the agent is gone: alone, with its node, or with the job
                    self.access.agent_died(node)
                    time.sleep(REFRESH_EVERY)
                    continue
                for file, piece in zip(files, pieces, strict=True):
                    yield from file.take(piece)
        if not self.access.running:
            return
        self.access.running = False  # the job's agents are gone: agents of this command read the rest
        self.tail = None
        try:
            yield from self.read()
        except ClusterGone:  # an embedded Ray ends with its job
            self._files.clear()

    def _ask_nodes(self, asked: dict[Any, tuple[str, list[_LogFile]]]) -> None:
        """Keep one question open to each node."""
        busy = {node for node, _ in asked.values()}
        by_node: dict[str, list[_LogFile]] = {}
        for file in self._files.values():
            if file.process.node_id not in busy and not file.problem:
                by_node.setdefault(file.process.node_id, []).append(file)
        for node, files in by_node.items():
            agent = self.access.agent(node)
            if agent is None:
                for file in files:
                    file.problem = f"{file.process.host} is gone"
                continue
            asked[agent.read_logs.remote([one.position for one in files], ASK_FOR)] = (node, files)

    def _find(self, tail: int | None) -> None:
        """Add the log files of new processes. While no chosen process is known, add those of starting ones."""
        known = self.access.processes()
        for process in known if any(map(self.chosen, known)) else self.access.starting(known):
            if not self.chosen(process):
                continue
            for stream, path in zip(STREAMS, process.logs, strict=False):
                key = (*process.key, stream)
                if path and stream in self.streams and key not in self._files:
                    position = LogPosition(path=path, tail=tail)
                    self._files[key] = _LogFile(process=process, stream=stream, position=position)

    @property
    def problems(self) -> list[Finding]:
        """Findings about log files that could not be read, one for the files of a host and folder."""
        together: dict[tuple[str, str, str], list[_LogFile]] = {}
        for file in self._files.values():
            if file.problem:
                folder = file.position.path.rpartition("/")[0]
                together.setdefault((file.process.host, folder, file.problem), []).append(file)
        return [
            Finding(
                code="RE151",
                what=f"{counted(len(files), 'log file')} of {listed(file.process.name for file in files)} cannot be read",
                why=problem,
                remedy=f"look on {host} in {folder}",
            )
            for (host, folder, problem), files in together.items()
        ]
