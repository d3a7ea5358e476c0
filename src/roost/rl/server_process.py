"""An inference server as a child of its engine: started, waited for, watched and stopped."""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from roost.engine.processes.confinement import Family
from roost.errors import Finding, LaunchError
from roost.rl.addresses import http_status, is_fine
from roost.rl.command import secret_texts, without_secrets
from roost.secret_names import hide_secrets

log = logging.getLogger("roost")

ASK_EVERY = 0.2  # seconds
ANSWER_WITHIN = 2.0
KILL_WITHIN = 5.0
_LOG_BYTES = 64 * 1024
_OUTPUT = "/proc/self/fd/2"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class ServerFailed(LaunchError):
    """A server that did not become healthy. `tail` holds its last lines, if they could be read."""

    tail: str = ""

    def __str__(self) -> str:
        return super().__str__() + (f"\n\nits last lines:\n{self.tail}" if self.tail else "")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ServerProcess:
    """A running server. Messages about it hide the secrets it was given."""

    name: str
    _process: subprocess.Popen[bytes]
    _family: Family
    _log_start: int | None
    _secrets: Sequence[str]  # that it was given and may print, longest first

    @classmethod
    def start(cls, argv: Sequence[str], env: Mapping[str, str]) -> ServerProcess:
        """Run the words, with `env` added to the environment of this process.

        The server writes its output and errors to the standard error of this process, in one order.
        """
        family = Family()
        environ = {**os.environ, **env, **family.variables}
        log_start = _log_size()
        try:
            process = subprocess.Popen(list(argv), stdin=subprocess.DEVNULL, stdout=2, env=environ)
        except OSError as error:
            raise ServerFailed(_cannot_run(argv[0], error, environ)) from error
        family.head(process.pid)
        return cls(_name(without_secrets(argv)), process, family, log_start, secret_texts(argv, env))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while the server runs; minus the signal's number if a signal killed it."""
        return self._process.poll()

    def wait_healthy(self, url: str | None, within: float) -> None:
        """Return once a GET of `url` gives a status of 200 to 299; without a URL, running is enough.

        Raises as soon as the server ends, or if it is not healthy in time. Does not stop the server.
        """
        deadline = time.monotonic() + within
        answer: int | str = "it was not asked yet"
        while True:
            if url is not None:
                answer = http_status(url, max(0.01, min(ANSWER_WITHIN, deadline - time.monotonic())))
            if not self.running:  # even if another server answers at the URL
                raise self._failed(self._ended())
            if url is None or is_fine(answer):
                return
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._failed(self._late(url, within, answer))
            try:
                self._process.wait(min(ASK_EVERY, left))
            except subprocess.TimeoutExpired:
                continue

    def is_healthy(self, url: str | None) -> bool:
        """Whether the server runs and one GET of `url` succeeds."""
        return self.running and (url is None or is_fine(http_status(url, ANSWER_WITHIN)))

    def stop(self, grace: float = 5.0) -> None:
        """End the server and all its descendants: SIGTERM, then SIGKILL after `grace` seconds. May be called twice."""
        deadline = time.monotonic() + grace
        if not self._family.signal(signal.SIGTERM) and self.running:
            self._process.terminate()  # a system without /proc
        while (self._family.living() or self.running) and time.monotonic() < deadline:
            time.sleep(0.02)
        deadline = time.monotonic() + KILL_WITHIN
        while (self._family.signal(signal.SIGKILL) or self.running) and time.monotonic() < deadline:
            self._process.kill()
            time.sleep(0.02)
        self._process.poll()
        self._family.collect(but=self._process.pid)
        if left := self._family.living():
            log.warning("processes of server %s do not end although killed: %s", self.name, sorted(left))

    def tail(self, lines: int = 20) -> str:
        """The last lines written since the server's start; empty if this process's errors do not go to a file."""
        if self._log_start is None or lines < 1:
            return ""
        try:
            with open(_OUTPUT, "rb") as file:  # noqa: PTH123  also when the file has been removed
                size = os.fstat(file.fileno()).st_size
                start = self._log_start if self._log_start <= size else 0  # the file was truncated since then
                file.seek(max(start, size - _LOG_BYTES))
                written = file.read(_LOG_BYTES)
        except OSError:
            return ""
        text = self._without_secrets(written.decode(errors="replace").replace("\r", "\n"))
        if size - start > _LOG_BYTES:  # the text may begin in the middle of a secret
            text = text[len(self._secrets[0]) if self._secrets else 0 :]
        return "\n".join(_harmless(line) for line in text.strip("\n").split("\n")[-lines:])

    def _without_secrets(self, text: str) -> str:
        text = _ANSI.sub("", text)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _ended(self) -> Finding:
        code = self._process.returncode
        how = f"exited with {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
        last = self.tail(1)
        return Finding(
            code="RE120",
            what=f"the server {self.name} {how} before it was healthy",
            why=f"its last line: {last}" if last else "",
            remedy="was the machine out of memory? the worker's log has its output"
            if code == -signal.SIGKILL
            else "the worker's log has its output",
        )

    def _late(self, url: str | None, within: float, answer: int | str) -> Finding:
        said = f"status {answer}" if isinstance(answer, int) else answer
        return Finding(
            code="RE120",
            what=f"the server {self.name} is not healthy after {within:g} s",
            why=f"GET {url}: {said}",
            remedy="does it listen there? if it only needs longer, raise start_within; the worker's log has its output",
        )

    def _failed(self, finding: Finding) -> ServerFailed:
        error = ServerFailed(finding)
        error.tail = self.tail()
        return error


def _name(argv: Sequence[str]) -> str:
    """The name of the server: the program, or the module or script if the program is a Python interpreter."""
    words = list(argv)
    if Path(words[0]).name.startswith("python"):
        if "-m" in words[1:-1]:
            return words[words.index("-m") + 1]
        words = [word for word in words[1:] if not word.startswith("-")] or words
    return Path(words[0]).name


def _cannot_run(program: str, error: OSError, environ: Mapping[str, str]) -> Finding:
    what = f"the server's program {program!r} cannot be run"
    if isinstance(error, FileNotFoundError):
        if "/" not in program:
            why = f"it is in no directory of PATH: {environ.get('PATH', os.defpath)}"
            return Finding(code="RE120", what=what, why=why, remedy="install it here, or write its full path")
        why = (
            "its first line names an interpreter that is not there"
            if Path(program).exists()
            else "there is no such file"
        )
        return Finding(code="RE120", what=what, why=why, remedy="the path must be right on the engine's node")
    if isinstance(error, PermissionError):
        why = "it is a directory" if Path(program).is_dir() else "it is not executable for this user"
        remedy = "`chmod +x` it, or start it with its interpreter: `python server.py`"
        return Finding(code="RE120", what=what, why=why, remedy=remedy)
    if error.errno == errno.ENOEXEC:
        remedy = "start it with its interpreter: `python server.py`"
        return Finding(code="RE120", what=what, why="it is neither a program nor names one", remedy=remedy)
    why = f"{type(error).__name__}: {error.strerror or error}"
    return Finding(code="RE120", what=what, why=why, remedy="the machine says why")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _log_size() -> int | None:
    try:
        status = os.fstat(2)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _harmless(line: str) -> str:
    """A server's line for a message, without secrets and control characters."""
    plain = line[:2000].replace("\t", "    ")
    kept = "".join(ch if ch.isprintable() else "\ufffd" for ch in hide_secrets(plain))
    return kept if len(kept) <= 500 else kept[:497] + "..."
