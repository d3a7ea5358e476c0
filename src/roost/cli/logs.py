"""`roost logs`: what the processes of a job wrote, from every node."""

from __future__ import annotations

import sys

import click

from roost.cli.chosen_process import Target, described, target_argument
from roost.cli.ending import FINE, FOUND, emit, emit_line, tell, tell_findings, wants_colour
from roost.cli.running_job import address_for, address_option
from roost.views.process_text import log_text


@click.command("logs")
@target_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends, over restarts too.")
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Begin with the last N lines of each file."
)
@click.option("--out", "stream", flag_value="out", help="Only what was written to stdout.")
@click.option("--err", "stream", flag_value="err", help="Only what was written to stderr.")
@address_option
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object.")
def command(
    target: Target, follow: bool, tail: int | None, stream: str | None, address: str | None, as_json: bool
) -> int:
    """Show what the processes of a job wrote, from every node, each line with the process that wrote it.

    Before each line stands the process: `actor:3 |` for stdout, `actor:3 !` for stderr, `actor:3+1 |` after one
    restart. No line is left out or merged with another. The driver need not answer. Of a job that has ended, the logs
    are shown as long as its Ray runs.
    """
    from roost.engine.operating.job_access import JobAccess
    from roost.engine.operating.job_logs import STREAMS, JobLogs

    with JobAccess(target.job, address_for(address, target.job)) as job:
        known = job.processes()
        if job.running and not any(map(target.covers, known)):
            known = job.latest(known)
        target.check(known)
        if not job.running:
            tell(f"job {target.job} has ended; these are the logs of its last run")
        elif not known:
            tell(f"job {target.job} has no processes" + " yet" * follow)
        chosen = (stream,) if stream else STREAMS
        logs = JobLogs(access=job, chosen=target.covers, streams=chosen, tail=tail)
        colour, was_running = wants_colour(sys.stdout), job.running
        for line in logs.follow() if follow else logs.read():
            if as_json:
                read_on = emit_line(**described(line.process), stream=line.stream, text=line.text)
            else:
                read_on = emit(log_text(line, colour))
            if not read_on:
                return FINE
        if follow and was_running:
            tell(f"job {target.job} has ended")
        tell_findings(logs.problems)
        return FOUND if logs.problems else FINE
