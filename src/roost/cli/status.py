"""`roost status`: what running jobs do, planned against actual, from any shell of the cluster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import click
from click.core import ParameterSource
from rich.console import Console
from rich.live import Live
from rich.text import Text

from roost.cli.chosen_process import optional_job_argument
from roost.cli.ending import (
    FINE,
    code_of,
    emit,
    emit_line,
    emit_result,
    has_reader,
    refused,
    tell,
    tell_findings,
    wants_colour,
    width_of,
)
from roost.cli.live_page import LOOPBACK, check_web, serve_jobs
from roost.cli.options import seconds_option
from roost.cli.running_job import address_option, chosen_address, connected, no_ray
from roost.config.fields import NAME
from roost.engine.job.job_folder import address_elsewhere, check_not_elsewhere, past_jobs, read_history
from roost.engine.job_snapshot import JobSnapshot
from roost.errors import ClusterError, ClusterGone, JobEnded
from roost.views.job_text import render_changes, render_job, render_jobs
from roost.web.live_jobs import Read

MOST_ENDED = 5  # jobs that have ended, in a list of jobs
ShowJobs = Callable[[Sequence[JobSnapshot]], bool]  # False once nobody reads it


@click.command("status")
@optional_job_argument
@address_option
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C or the end of the job.")
@seconds_option("--every", 1.0, "How often --watch looks.", least=0.1)
@seconds_option("--timeout", 5.0, "How long nodes may take to answer; what does not answer is shown as such.")
@click.option(
    "--web", is_flag=True, help="Serve a live page and metrics, on this machine's loopback, until Ctrl-C."
)
@click.option("--host", metavar="ADDRESS", help="Where --web listens. Default: 127.0.0.1.")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT", help="The port of --web. Default: a free one."
)
@click.option("--open", "opens", is_flag=True, help="Open the page of --web in a browser.")
@click.option("--all", "show_all", is_flag=True, help="Show every process, node and event.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the jobs as JSON; with --watch one line for each look."
)
def command(
    job: str | None,
    address: str | None,
    watch: bool,
    every: float,
    timeout: float,
    web: bool,
    host: str | None,
    port: int | None,
    opens: bool,
    show_all: bool,
    as_json: bool,
) -> int:
    """Show what a job's processes do now, planned against actual; without JOB all jobs side by side.

    Works while the job's driver is busy, stopped or gone: the nodes are asked, and no worker is. A job that has ended
    is shown from its history on this machine.
    """
    if not web and (host is not None or port is not None or opens):
        raise click.UsageError("--host, --port and --open say how --web serves; add --web.")
    if not watch and click.get_current_context().get_parameter_source("every") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--every says how often --watch looks; add --watch.")
    if web and (watch or as_json):
        raise click.UsageError("--web serves a page, and --watch and --json print; give one of them.")
    if web:
        check_web()
    show = Show(one=job is not None, show_all=show_all, as_json=as_json)
    reached = chosen_address(address, job)
    problem: ClusterError = no_ray("no Ray and no job")
    if reached is not None:
        try:
            with connected(reached) as reached:
                from roost.engine.job.job_reader import JobsReader

                read = partial(JobsReader(job).read, timeout)
                found = read()
                if web:
                    serve_jobs(read, job, host or LOOPBACK, port or 0, opens)
                elif watch:
                    _watch(read, found, job, show, every)
                else:
                    others = (
                        past_snapshots(reached, besides=[one.job for one in found]) if job is None else []
                    )
                    show.jobs([*found, *others])
            return FINE
        except ClusterError as error:
            problem = error
    if job is not None and reached is not None:
        check_not_elsewhere(job, reached)
    past = past_snapshots(reached, only=job)
    if not past:
        return refused(problem, "", as_json)
    show.jobs(past)
    if job is not None and (reached is None or isinstance(problem, JobEnded)):
        return FINE  # it has ended, and that is all there is to know
    tell_findings(problem.findings)
    return code_of(problem)


def _watch(read: Read, found: Sequence[JobSnapshot], job: str | None, show: Show, every: float) -> None:
    """Show what was found, and look again, until Ctrl-C, the end of the job, or that of the reader."""
    with show.again_and_again() as shown:
        while shown(found) and (job is None or found[0].state != "ended"):
            time.sleep(every)
            if not has_reader(sys.stdout):
                break
            try:
                found = read()
            except ClusterGone:
                if job is None:
                    raise
                found = [replace(found[0], time=time.time(), state="ended", silent=())]


def past_snapshots(
    asked: str | None, only: str | None = None, besides: Sequence[str] = ()
) -> list[JobSnapshot]:
    """The jobs of this machine that run on another Ray than the asked one, and the last ones that have ended."""
    names = [only] if only is not None else [name for name in past_jobs() if name not in besides]
    names = [name for name in names if NAME.fullmatch(name)]
    others = {name: where for name in names if (where := address_elsewhere(name, asked)) is not None}
    ended = [name for name in names if name not in others][:MOST_ENDED]
    for name, where in others.items():
        tell(f"job {name} runs on the Ray at {where}; `roost status {name} --address {where}` shows it")
    states = dict.fromkeys(others, "elsewhere") | dict.fromkeys(ended, "ended")
    now = time.time()
    return [
        JobSnapshot(job=name, time=now, state=state, events=tuple(events))
        for name, state in states.items()
        if (events := read_history(name))
    ]


class Show:
    """Shows jobs on stdout as the options say."""

    def __init__(self, *, one: bool, show_all: bool, as_json: bool) -> None:
        self._one, self._show_all, self.as_json = one, show_all, as_json

    def jobs(self, found: Sequence[JobSnapshot]) -> None:
        if self.as_json:
            emit_result(jobs=[one.to_dict() for one in found])
        else:
            emit(self.text(found))

    def text(self, found: Sequence[JobSnapshot]) -> str:
        width, colour = width_of(sys.stdout), wants_colour(sys.stdout)
        if self._one:
            return render_job(found[0], width=width, colour=colour, show_all=self._show_all)
        return render_jobs(found, width=width, colour=colour)

    def again_and_again(self) -> AbstractContextManager[ShowJobs]:
        """For --watch: a line of JSON for each look, drawing in place, or lines of changes."""
        if self.as_json:
            return nullcontext(lambda found: emit_line(jobs=[one.to_dict() for one in found]))
        return _redrawn(self.text) if wants_redraw() else nullcontext(_InLines(self.text))


@contextmanager
def _redrawn(text: Callable[[Sequence[JobSnapshot]], str]) -> Iterator[ShowJobs]:
    """Draws in place, on a screen of its own. The last look stays when it ends."""
    last = ""

    def draw(found: Sequence[JobSnapshot]) -> bool:
        nonlocal last
        last = text(found)
        live.update(Text.from_ansi(last), refresh=True)
        return True

    try:
        with Live(console=Console(file=sys.stdout), screen=True, auto_refresh=False) as live:
            yield draw
    finally:
        emit(last)


class _InLines:
    """Shows all of it once, and then a line for each change."""

    def __init__(self, text: Callable[[Sequence[JobSnapshot]], str]) -> None:
        self._text = text
        self._before: dict[str, JobSnapshot] | None = None

    def __call__(self, found: Sequence[JobSnapshot]) -> bool:
        if self._before is None:
            text = self._text(found)
        else:
            now = time.strftime("%H:%M:%S")
            text = "".join(f"{now} {line}\n" for line in self._changes(self._before, found))
        self._before = {one.job: one for one in found}
        return emit(text)

    def _changes(self, before: dict[str, JobSnapshot], found: Sequence[JobSnapshot]) -> Iterator[str]:
        for one in found:
            if one.job in before:
                yield from render_changes(before[one.job], one)
            else:
                yield f"job {one.job}: new, {one.state}"
        for name in before.keys() - {one.job for one in found}:
            yield f"job {name}: ended"


def wants_redraw() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
