"""`roost stacks`: what each process of a job does now."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from roost.cli.chosen_process import Target, described, target_argument
from roost.cli.ending import FINE, FOUND, emit, emit_result, tell_findings, wants_colour
from roost.cli.running_job import address_for, address_option
from roost.errors import ClusterError, Finding
from roost.views.process_text import stacks_text


@click.command("stacks")
@target_argument
@address_option
@click.option("--all", "show_all", is_flag=True, help="Also threads and calls of roost and Ray themselves.")
@click.option("--json", "as_json", is_flag=True, help="Print the stacks as JSON.")
def command(target: Target, address: str | None, show_all: bool, as_json: bool) -> int:
    """Show the Python stacks of what each process of a job does now, innermost call first.

    Where py-spy is installed on a node, it reads the processes there, also those that are stopped or whose interpreter
    one thread holds. Elsewhere a thread of each process answers. No process is paused, and no driver is asked.
    """
    from roost.engine.operating.job_access import JobAccess
    from roost.engine.operating.job_stacks import DRIVER, driver_of, job_stacks

    with JobAccess(target.job, address_for(address, target.job)) as job:
        if not job.running:
            raise ClusterError(
                code="RE106",
                what=f"job {target.job!r} has ended, so none of its processes does anything",
                remedy=f"`roost logs {target.job}` shows what they wrote",
            )
        known = job.latest(job.processes())
        target.check(known)
        driver = driver_of(job) if target.component is None else None
        wanted = [*([driver] if driver else []), *filter(target.covers, known)]
        seen = job_stacks(job, wanted)
    problems = [
        Finding(
            code="RE151",
            what=f"the stacks of {one.process.name}, process {one.process.pid} on {one.process.host}, cannot be read",
            why=one.stacks.problem,
            remedy="pip install py-spy there: it also reads processes that are stopped or hold the interpreter"
            if "py-spy" in one.stacks.problem
            else f"`roost logs {target.job}:{one.process.component}:{one.process.rank}` shows what it wrote",
        )
        for one in seen
        if one.stacks.problem and one.process.component != DRIVER  # only py-spy reads that one
    ]
    if as_json:
        processes = [{**described(one.process), **asdict(one.stacks)} for one in seen]
        emit_result(job=target.job, processes=processes, findings=problems)
    else:
        emit(stacks_text(seen, show_all=show_all, colour=wants_colour(sys.stdout)))
    tell_findings(problems)
    return FOUND if problems else FINE
