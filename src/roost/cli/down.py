"""`roost down`: ends a job from any shell of its cluster."""

from __future__ import annotations

import click

from roost.cli.chosen_process import job_argument
from roost.cli.ending import FAILED, FINE, emit_result, tell, tell_findings
from roost.cli.options import seconds_option
from roost.cli.running_job import address_for, address_option
from roost.errors import Finding, JobEnded, counted


@click.command("down")
@job_argument
@address_option
@seconds_option("--grace", 10.0, "How long the driver may take to end the job.", least=0)
@seconds_option("--timeout", 30.0, "How long ending it from outside may take then.")
@click.option("--force", is_flag=True, help="Do not wait for the driver, and kill it too.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(job: str, address: str | None, grace: float, timeout: float, force: bool, as_json: bool) -> int:
    """End a job: every process with its children, its reservations, its ports and locks.

    The job's driver is asked first: an error is raised in it that says who took the job down, and when. If the driver
    does not end the job in time, as one that is stopped, the job is ended from outside. The driver itself is left
    alone then, holding nothing, and gets the error when it goes on; --force kills it.
    """
    from roost.engine.operating.job_access import JobAccess
    from roost.engine.operating.taking_down import TakingDown

    try:
        reached = JobAccess(job, address_for(address, job))
    except JobEnded as error:  # its Ray is gone, and nothing of the job can be left
        tell(error.findings[0].what)
        if as_json:
            emit_result(job=job, was_running=False, orderly=False, driver="ended", processes=0, findings=())
        return FINE
    with reached:
        was_running = reached.running
        done = TakingDown(access=reached, tell=tell).run(grace, timeout, force)
        driver = reached.run.get("driver", {})
        where = f"process {driver.get('pid')} on {reached.run.get('host')}"
    problems = []
    if done.left:
        what = f"{done.left} of job {job!r} did not end in {timeout:g} s"
        remedy = "give it longer with --timeout; `ray list actors` and `ray list placement-groups` show what is left"
        problems.append(Finding(code="RE151", what=what, remedy=remedy))
    if done.silent:
        what = f"{', '.join(done.silent)} did not answer, so processes of job {job!r} may be left there"
        remedy = "look there, and repeat the command once the node answers"
        problems.append(Finding(code="RE151", what=what, remedy=remedy))
    if as_json:
        emit_result(
            job=job,
            was_running=was_running,
            orderly=done.orderly,
            driver=done.driver,
            processes=done.processes,
            findings=problems,
        )
    if not problems:
        tell(_summary(job, was_running, done.orderly, done.processes))
        if done.driver in ("running", "stopped"):
            tell(
                f"its driver, {where}, is still {done.driver}. It holds nothing of the job any more, and gets an "
                "error when it goes on; --force kills it"
            )
        elif done.driver == "unknown" and was_running:
            tell("its driver was not found, so it may still be running")
    tell_findings(problems)
    return FAILED if problems else FINE


def _summary(job: str, was_running: bool, orderly: bool, processes: int) -> str:
    if not was_running and not processes:
        return f"job {job} had ended already, and nothing of it is left"
    how = "by its driver" if orderly else "from outside"
    return f"job {job} is down: {counted(processes, 'process')} ended, {how}; nothing of it is left"
