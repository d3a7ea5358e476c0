"""`roost launch`: runs a job whose file says what to run."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import click

from roost.cli.chosen_cluster import chosen_inventory, placement_class
from roost.cli.driver import drive, wait_for_the_end
from roost.cli.ending import FORMAT_VERSION, INTERRUPTED, code_of, emit, located, tell, tell_findings
from roost.cli.interrupts import Interrupts, interrupts
from roost.cli.launch_progress import LaunchProgress
from roost.cli.plan import check_overrides, drawn
from roost.cli.user_code import UserCode
from roost.config.document import Document, as_written
from roost.config.job import Job, read_job
from roost.config.program import Program, Roles, driver_config, read_program, unmatched
from roost.engine.cluster import Cluster
from roost.engine.cluster_options import wants_inline
from roost.engine.connection.embedded import embedded, own_cluster_address
from roost.engine.launch_orders import accelerators_of
from roost.errors import ClusterError, Finding, RoostError, error_for, nearest
from roost.inventory.inventory import Inventory
from roost.planning.comparison import shape_differences
from roost.planning.left_out_secrets import with_secrets
from roost.planning.plan import Plan
from roost.planning.plan_files import load_plan
from roost.planning.planner import plan


@click.command("launch")
@click.argument("config", type=click.Path())
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--on", metavar="SHAPE", help="Run on an embedded Ray of this shape, such as 2x4.")
@click.option(
    "--address",
    metavar="ADDRESS",
    help="The Ray to run on. Default: RAY_ADDRESS, then yours on this machine.",
)
@click.option("--plan", "plan_file", metavar="FILE", type=click.Path(), help="Run this saved plan.")
@click.option("--model-parallel", is_flag=True, help="Place as ModelParallelComponentPlacement does.")
@click.option(
    "--skip", multiple=True, metavar="COMPONENT", help="Hold its accelerators and run nothing there."
)
@click.option("--job", metavar="NAME", help="The name of the job. Default: ROOST_JOB, or one made up.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    metavar="SECONDS",
    help="How long nodes, and then processes, may take to be there. Default: 300.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a last line of JSON that sums up.")
def command(
    config: str,
    overrides: tuple[str, ...],
    on: str | None,
    address: str | None,
    plan_file: str | None,
    model_parallel: bool,
    skip: tuple[str, ...],
    job: str | None,
    timeout: float,
    as_json: bool,
) -> int:
    """Show the plan of a job and run it: start every process, then call the driver.

    CONFIG is the job's YAML file, with `workers` and `driver` beside `cluster`. KEY=VALUE overrides a value of it.
    The exit code is the driver's. Ctrl-C ends the job in order, a second Ctrl-C at once.
    """
    check_overrides(overrides)
    if on is not None and address is not None:
        raise click.UsageError("--on starts a Ray of its own, and --address names one; give one of them.")
    if plan_file is not None and model_parallel:
        raise click.UsageError("--plan is placed already, so --model-parallel has no meaning with it.")
    summary: dict[str, Any] = {"format_version": FORMAT_VERSION}
    with interrupts() as signals:
        try:
            ready = _prepared(config, overrides, on, plan_file, model_parallel, skip)
            code = _run(ready, signals, address, job, timeout, summary)
            tell(f"ended with exit code {code}" if code else "ended")
        except RoostError as error:
            findings, code = located(error.findings, config), code_of(error)
            summary["findings"] = [finding.to_dict() for finding in findings]
            tell_findings(findings)
        except KeyboardInterrupt:
            code = signals.exit_code
            tell("interrupted" if code == INTERRUPTED else "terminated")
    if as_json:
        emit(json.dumps({**summary, "exit_code": code}) + "\n")
    return code


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything about a launch that is known before there is a cluster."""

    document: Document
    code: UserCode
    driver_config: Any
    skip: tuple[str, ...]
    on: str | None
    shape: Inventory | None  # the same, read: of the embedded Ray to start
    plan: Plan | None  # None: to be made for the cluster that is found
    placement: Any


def _prepared(
    config: str,
    overrides: tuple[str, ...],
    on: str | None,
    plan_file: str | None,
    model_parallel: bool,
    skip: tuple[str, ...],
) -> Prepared:
    """Read the job and import its code. Whatever is wrong with them is raised here."""
    shape = chosen_inventory(on, None)
    document = as_written(config, overrides)
    job, findings = read_job(document)
    program, problems = read_program(document)
    saved = load_plan(plan_file) if plan_file is not None else None
    roles = Roles.of(job)
    if saved is not None:
        silent = [name for name, part in saved.components.items() if part.runs_nothing]
        running = [name for name in saved.components if name not in silent]
        roles = Roles(running=running, placeholders=silent, others=roles.others)
    if program is not None and not _errors(findings):
        problems += unmatched(program, roles, document, skip)
    if _errors([*findings, *problems]):
        raise error_for([*findings, *problems])
    assert program is not None
    for name in skip:
        if name not in roles.running:
            raise click.BadParameter(
                f"no component {name!r}; {nearest(name, roles.running)}", param_hint="--skip"
            )
    wanted = {
        name: one for name, one in program.workers.items() if name in roles.running and name not in skip
    }
    given, placement = driver_config(document), placement_class(model_parallel)
    planned = None
    if saved is not None:
        planned = _completed(saved, job, shape)
    elif shape is not None:
        planned = plan(document, shape, placement=placement)
    return Prepared(
        document=document,
        code=UserCode(Program(workers=wanted, driver=program.driver), document),
        driver_config=given,
        skip=skip,
        on=on,
        shape=shape,
        plan=planned,
        placement=placement,
    )


def _completed(saved: Plan, job: Job, shape: Inventory | None) -> Plan:
    """A saved plan with the secrets it left out; refused here if it does not fit a cluster of this shape."""
    if shape is not None and (differences := shape_differences(saved, shape)):
        raise error_for(differences)
    nodes = Inventory(nodes=saved.inventory.nodes)
    grouped, problems = nodes.with_groups(job.groups, job.document) if job.groups else (nodes, [])
    if _errors(problems):
        raise error_for(problems)
    return with_secrets(saved, grouped.groups, os.environ)


def _errors(findings: list[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def _run(
    ready: Prepared,
    signals: Interrupts,
    address: str | None,
    job: str | None,
    timeout: float,
    summary: dict[str, Any],
) -> int:
    """Start the job, call its driver, and end everything in order."""
    planned = ready.plan
    if planned is not None:
        _show(planned)
    with ExitStack() as started:
        try:
            where = _where(ready, address, started)
            cluster = started.enter_context(
                Cluster(
                    None if planned is None else len(planned.inventory.nodes),
                    ready.document,
                    job=job,
                    timeout=timeout,
                    **where,
                )
            )
            tell(f"nodes: {cluster.num_nodes} of {cluster.num_nodes}, for job {cluster.job}")
            if planned is None:
                planned = plan(ready.document, cluster, placement=ready.placement)
                _show(planned)
            summary.update(job=cluster.job, plan=planned.digest)
            progress = LaunchProgress(len(accelerators_of(list(planned.components.values()))))
            try:
                run = started.enter_context(
                    cluster.launch(
                        planned, ready.code.workers, skip=ready.skip, timeout=timeout, report=progress
                    )
                )
            finally:
                progress.close()
            summary["processes"] = sum(map(len, run.groups.values()))
            if ready.code.driver is None:
                tell("running: the job has no `driver`, so its processes run until Ctrl-C")
                wait_for_the_end()
            tell("running")
            return drive(ready.code.driver, run, ready.driver_config)  # type: ignore[arg-type]
        finally:
            signals.ending = True


def _where(ready: Prepared, address: str | None, started: ExitStack) -> dict[str, Any]:
    """The cluster's arguments that say where it is. Starts an embedded Ray if one is asked for."""
    if wants_inline(None):
        return {"inline": ready.on}
    if ready.shape is not None:
        tell(f"starting an embedded Ray: {ready.shape}")
        return {"address": started.enter_context(embedded(ready.shape))}
    found = address or os.environ.get("RAY_ADDRESS") or own_cluster_address()
    if not found:
        raise ClusterError(
            Finding(
                code="RE101",
                what="there is no Ray to launch the job on",
                why="no --address was given, RAY_ADDRESS is not set, and this user runs no Ray on this machine",
                remedy="name one with --address, or try the job on an embedded one: --on 2x4",
            )
        )
    return {"address": found}


def _show(planned: Plan) -> None:
    """The plan and its advice, on stderr: stdout belongs to the driver."""
    tell(drawn(planned, sys.stderr))
    tell_findings(planned.findings)
