"""Output and exit codes: results go to stdout, messages to stderr, and each exit code has one meaning."""

from __future__ import annotations

import errno
import json
import os
import select
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TextIO

import click

from roost.errors import (
    ClusterError,
    Finding,
    JobTakenDown,
    LaunchError,
    ReservationError,
    RoostError,
    Span,
    WorkerError,
    errors_in,
)
from roost.views.coloured_findings import DEFAULT_WIDTH, render_findings

UNKNOWN_WIDTH = 80  # columns of a terminal that reports 0, as serial lines and some CI systems do
FINE, FOUND, USAGE, NO_FIT, UNREACHABLE, FAILED, DIFFERENT, BUG, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 70, 130
FORMAT_VERSION = 1  # of the output of --json; a plan has a version of its own
UNWRITABLE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF))


def guarded(run: Callable[[], object], as_json: bool = False) -> int:
    """Run a verb and return its exit code, whatever it raises. Findings are also printed as JSON if that was asked."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a character the encoding lacks must not raise
    try:
        code = run()
        return code if isinstance(code, int) else FINE
    except RoostError as error:
        return _reported(error.findings, code_of(error), as_json)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        tell("interrupted")
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE:
            _silence(sys.stdout)
            tell(f"{error.filename or 'the output'} cannot be written: {error.strerror}")
            return FOUND
        if isinstance(error, ModuleNotFoundError) and error.name == "ray":
            remedy = "pip install 'ray[default]>=2.49'"
            missing = Finding(code="RE102", what="Ray is not installed here", remedy=remedy)
            return _reported([missing], UNREACHABLE, as_json)
        tell(f"roost has a bug: {type(error).__name__} in {_place(error)}")
        if os.environ.get("ROOST_DEBUG") == "1":
            tell("".join(traceback.format_exception(error)).rstrip())
        else:
            tell("Please report it, with the output of the same command under ROOST_DEBUG=1.")
        return BUG


def code_of(error: RoostError) -> int:
    if isinstance(error, JobTakenDown):
        return FAILED
    if isinstance(error, ClusterError) and not isinstance(error, ReservationError):
        return UNREACHABLE
    return FAILED if isinstance(error, (LaunchError, WorkerError)) else code_for(error.findings)


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}roost{os.sep}" in frame.filename] or frames
    return f"{os.path.basename(ours[-1].filename)}:{ours[-1].lineno}" if ours else "an unknown place"  # noqa: PTH119


def code_for(findings: Sequence[Finding], on_a_cluster: bool = True) -> int:
    """The exit code for findings: NO_FIT if the job is well formed and only does not fit this cluster."""
    serious = errors_in(findings)
    if not serious:
        return FINE
    return NO_FIT if on_a_cluster and all(finding.kind == "fit" for finding in serious) else FOUND


def refused(error: RoostError, file: str, as_json: bool) -> int:
    """Report an error about a file, and return its exit code."""
    return _reported(located(error.findings, file), code_of(error), as_json)


def _reported(findings: Sequence[Finding], code: int, as_json: bool) -> int:
    if as_json:
        emit_line(findings=findings)  # as some verbs print a line for each thing
    tell_findings(findings)
    return code


def located(findings: Sequence[Finding], file: str) -> list[Finding]:
    """The findings, with the file named for a missing key: it has no position in the file."""
    top = Span(source=file, line=1, column=1, length=1)
    return [
        replace(finding, where=top) if finding.path and finding.where is None else finding
        for finding in findings
    ]


def _open_streams() -> None:
    """Replace streams that the shell closed: writing a result then fails, and messages are dropped."""
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # noqa: SIM115, PTH123 - writing to it fails
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123


def emit(text: str, stream: TextIO | None = None) -> bool:
    """Write a result. A reader that stops early, as in `| head`, is not an error: then it is False.

    Nor is a stream that user code has closed.
    """
    stream = stream or sys.stdout
    if _is_closed(stream):
        return False
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _silence(stream)
        return False
    return True


def _is_closed(stream: TextIO | None) -> bool:
    """Whether user code has closed a stream, or set it to None. A stream of its own may not say."""
    return stream is None or getattr(stream, "closed", False)


def has_reader(stream: TextIO) -> bool:
    """False for a pipe whose reader has left, as `| head` does: also before anything is written to it."""
    try:
        poll = select.poll()
        poll.register(stream, 0)
        return not any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):  # it has no file descriptor
        return True


def _silence(stream: TextIO) -> None:
    """Discard buffered output, which Python would otherwise try to write again at exit."""
    with suppress(OSError):  # a stream in memory has no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def emit_json(data: Any) -> None:
    emit(json.dumps(data, indent=1) + "\n")


def emit_result(**result: Any) -> None:
    """Print the result of a verb as JSON."""
    emit_json(_versioned(result))


def emit_line(**result: Any) -> bool:
    """The same on one line."""
    return emit(json.dumps(_versioned(result)) + "\n")


def _versioned(result: dict[str, Any]) -> dict[str, Any]:
    if "findings" in result:
        result["findings"] = [one.to_dict() for one in result["findings"]]
    return {"format_version": FORMAT_VERSION, **result}


def tell(text: str, end: str = "\n") -> None:
    _talk(text + end)


def tell_findings(findings: Sequence[Finding]) -> None:
    if findings:
        _talk(render_findings(findings, colour=wants_colour(sys.stderr)))


def _talk(text: str) -> None:
    try:
        emit(text, sys.stderr)
    except OSError:  # stderr is closed or full: there is no other place for messages
        _silence(sys.stderr)


def wants_colour(stream: TextIO) -> bool:
    return (
        not _is_closed(stream)
        and stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def is_ascii(stream: TextIO) -> bool:
    return not (stream.encoding or "ascii").lower().replace("-", "").startswith("utf")


def width_of(stream: TextIO) -> int:
    """`COLUMNS` if it is set, else the terminal's width, else the default width of text in files and pipes."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return max(20, int(columns[:6]))
    try:
        return max(20, os.get_terminal_size(stream.fileno()).columns or UNKNOWN_WIDTH)
    except (OSError, ValueError):
        return DEFAULT_WIDTH
