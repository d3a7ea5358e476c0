"""`roost launch`: runs a job whose file says what to run."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import click

from roost.cli.chosen_cluster import chosen_inventory, model_parallel_option, placement_class
from roost.cli.chosen_job import job_arguments
from roost.cli.chosen_plan import check_overrides
from roost.cli.driver import drive
from roost.cli.ending import FINE, INTERRUPTED, code_of, emit_line, located, tell, tell_findings, wants_colour
from roost.cli.interrupts import Interrupts, interrupts
from roost.cli.launch_progress import LaunchProgress
from roost.cli.options import seconds_option
from roost.cli.plan_output import drawn
from roost.cli.running_job import named_or_own
from roost.cli.shell_completion import complete_component
from roost.cli.user_code import UserCode, users_traceback
from roost.config.document import Document, JobFile, as_written
from roost.config.fields import NAME, NAME_RULE
from roost.config.job import Job, read_job
from roost.config.program import Program, Roles, driver_config, read_program, unmatched
from roost.engine.cluster import Cluster
from roost.engine.cluster_options import wants_inline
from roost.engine.connection.embedded import embedded
from roost.engine.run import Run
from roost.engine.workers.remote_errors import RemoteTraceback
from roost.errors import LaunchError, RoostError, error_for, errors_in, nearest
from roost.inventory.inventory import Inventory
from roost.planning.component_placement import ComponentPlacement
from roost.planning.component_plan import needs_of
from roost.planning.files import load_plan
from roost.planning.launch_preparation import shape_differences, with_secrets
from roost.planning.plan import Plan
from roost.planning.planner import plan
from roost.secret_names import hide_rest

# The sections that a saved plan has decided.
_PLANNED = ("cluster", "supervise")


@click.command("launch")
@job_arguments
@click.option("--on", metavar="SHAPE", help="Run on an embedded Ray of this shape, such as 2x4.")
@click.option(
    "--address",
    metavar="ADDRESS",
    help="The Ray to run on. Default: RAY_ADDRESS, then yours on this machine.",
)
@click.option("--plan", "plan_file", metavar="FILE", type=click.Path(), help="Run this saved plan.")
@model_parallel_option
@click.option(
    "--skip",
    multiple=True,
    metavar="COMPONENT",
    shell_complete=complete_component,
    help="Hold its accelerators and run nothing there.",
)
@click.option("--job", metavar="NAME", help="The name of the job. Default: ROOST_JOB, or one made up.")
@seconds_option("--timeout", 300.0, "How long nodes, and then processes, may take to be there.")
@click.option("--json", "as_json", is_flag=True, help="Print a last line of JSON that sums up.")
def command(**given: Any) -> int:
    """Show the plan of a job and run it: start every process, then call the driver.

    CONFIG is the job's YAML file, with `workers` and `driver` beside `cluster`. KEY=VALUE overrides a value of it.
    The exit code is the driver's. Ctrl-C ends the job in order, a second Ctrl-C at once.
    """
    options = LaunchOptions(**given)
    check_overrides(options.overrides)
    if options.on is not None and options.address is not None:
        raise click.UsageError("--on starts a Ray of its own, and --address names one; give one of them.")
    if options.plan_file is not None and options.model_parallel:
        raise click.UsageError("--plan is placed already, so --model-parallel has no meaning with it.")
    if options.address is not None and wants_inline(None):
        raise click.UsageError(
            "ROOST_INLINE is set, so no Ray is used, and --address has no meaning with it."
        )
    if options.job is not None and not NAME.fullmatch(options.job):  # before an embedded Ray is started
        raise click.BadParameter(f"{options.job[:100]!r} is not a job name; {NAME_RULE}", param_hint="--job")
    planned = [one for one in options.overrides if re.split(r"[.=/@]", one.lstrip("+~"))[0] in _PLANNED]
    if options.plan_file is not None and planned:
        what = f"--plan is placed already, so {hide_rest(planned[0])} would change nothing."
        raise click.UsageError(f"{what} Values of secrets come from the environment.")
    summary: dict[str, Any] = {}
    with interrupts() as signals:
        try:
            code = run_job(prepared(options), options, signals, summary)
            tell(f"ended with exit code {code}" if code else "ended")
        except RoostError as error:
            findings, code = located(error.findings, str(options.config)), code_of(error)
            if isinstance(error, LaunchError) and error.__cause__ is not None:
                tell(_traceback(error.__cause__))
            summary["findings"] = findings
            tell_findings(findings)
        except KeyboardInterrupt:
            code = signals.exit_code
            tell("interrupted" if code == INTERRUPTED else "terminated")
    if options.as_json:
        emit_line(**summary, exit_code=code)
    return code


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What the command line says."""

    config: JobFile
    overrides: tuple[str, ...]
    timeout: float
    on: str | None = None
    address: str | None = None
    plan_file: str | None = None
    model_parallel: bool = False
    skip: tuple[str, ...] = ()
    job: str | None = None
    as_json: bool = False

    @property
    def placement(self) -> type[ComponentPlacement]:
        return placement_class(self.model_parallel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything about a launch that is known before there is a cluster."""

    document: Document
    code: UserCode
    driver_config: Any
    shape: Inventory | None  # of the embedded Ray to start
    plan: Plan | None  # None: to be made for the cluster that is found


def prepared(options: LaunchOptions) -> Prepared:
    """Read the job and import its code. One error reports all their problems."""
    shape, skip = chosen_inventory(options.on, None), options.skip
    document = as_written(options.config, options.overrides)
    job, findings = read_job(document)
    program, problems = read_program(document)
    saved = load_plan(options.plan_file) if options.plan_file is not None else None
    roles = Roles.of(job)
    if saved is not None:
        silent = [name for name, part in saved.components.items() if part.runs_nothing]
        names = [name for name in saved.components if name not in silent]
        roles = Roles(running=names, placeholders=silent, others=roles.others)
    if program is not None and not errors_in(findings):
        problems += unmatched(program, roles, document, skip)
    if errors_in([*findings, *problems]):
        raise error_for([*findings, *problems])
    assert program is not None
    for name in skip:
        if name not in roles.running:
            what = f"no component {name!r}; {nearest(name, roles.running)}"
            raise click.BadParameter(what, param_hint="--skip")
    running = set(roles.running).difference(skip)
    wanted = {name: one for name, one in program.workers.items() if name in running}
    given, planned = driver_config(document), None
    if saved is not None:
        planned = _completed(saved, job, shape)
    elif shape is not None:
        planned = plan(document, shape, placement=options.placement)
    code = UserCode(Program(workers=wanted, driver=program.driver), document)
    return Prepared(document=document, code=code, driver_config=given, shape=shape, plan=planned)


def _completed(saved: Plan, job: Job, shape: Inventory | None) -> Plan:
    """A saved plan with the secrets it left out; refused here if it does not fit a cluster of this shape."""
    if shape is not None and (differences := shape_differences(saved, shape)):
        raise error_for(differences)
    nodes = Inventory(nodes=saved.inventory.nodes)
    grouped, problems = nodes.with_groups(job.groups, job.document) if job.groups else (nodes, [])
    if errors_in(problems):
        raise error_for(problems)
    return with_secrets(saved, grouped.groups, os.environ)


def run_job(
    ready: Prepared,
    options: LaunchOptions,
    signals: Interrupts,
    summary: dict[str, Any],
    afterwards: Callable[[Run], None] = lambda run: None,
) -> int:
    """Start the job, call its driver, and end everything in order. Returns the driver's exit code.

    If that is 0, `afterwards` is called before the processes end.
    """
    planned = ready.plan
    if planned is not None:
        _show(planned)
    with ExitStack() as started:
        try:
            where = _where(ready, options, started)
            nodes = None if planned is None else len(planned.inventory.nodes)
            cluster = started.enter_context(
                Cluster(nodes, ready.document, job=options.job, timeout=options.timeout, **where)
            )
            tell(f"nodes: {cluster.num_nodes} of {cluster.num_nodes}, for job {cluster.job}")
            if planned is None:
                planned = plan(ready.document, cluster, placement=options.placement)
                _show(planned)
            summary.update(job=cluster.job, plan=planned.digest)
            progress = LaunchProgress(len(needs_of(list(planned.components.values()))))
            workers, skip, timeout = ready.code.workers, options.skip, options.timeout
            try:
                run = started.enter_context(
                    cluster.launch(planned, workers, skip=skip, timeout=timeout, report=progress)
                )
            finally:
                progress.close()
            summary["processes"] = sum(map(len, run.groups.values()))
            if ready.code.driver is None:
                tell("running: the job has no `driver`, so its processes run until Ctrl-C")
                threading.Event().wait()  # until a signal handler raises
            tell("running")
            code = drive(ready.code.driver, run, ready.driver_config)  # type: ignore[arg-type]
            if code == FINE:
                afterwards(run)
            return code
        finally:
            signals.ending = True


def _where(ready: Prepared, options: LaunchOptions, started: ExitStack) -> dict[str, Any]:
    """The cluster's arguments that say where it is. Starts an embedded Ray if one is asked for."""
    if wants_inline(None):
        return {"inline": options.on}
    from roost.engine.connection.ray_connection import prints_on_stderr

    started.enter_context(prints_on_stderr(wants_colour(sys.stderr)))  # stdout belongs to the driver
    if ready.shape is not None:
        tell(f"starting an embedded Ray: {ready.shape}")
        return {"address": started.enter_context(embedded(ready.shape))}
    remedy = "name one with --address, or try the job on an embedded one: --on 2x4"
    return {"address": named_or_own(options.address, "there is no Ray to launch the job on", remedy)}


def _traceback(cause: BaseException) -> str:
    """Where a constructor failed, in its own process."""
    remote = cause.__cause__
    return str(remote).strip() if isinstance(remote, RemoteTraceback) else users_traceback(cause)


def _show(planned: Plan) -> None:
    """The plan and its advice, on stderr: stdout belongs to the driver."""
    tell(drawn(planned, sys.stderr))
    tell_findings(planned.findings)
