"""`roost diff`: tells what is different between two plans, or between a plan and the running cluster."""

from __future__ import annotations

import os

import click

from roost.cli.chosen_cluster import cluster_options, live_option, live_snapshot
from roost.cli.chosen_plan import ClusterChoice, check_overrides, is_saved_plan, saved_plan
from roost.cli.ending import DIFFERENT, code_for, emit, emit_result, located, refused, tell_findings
from roost.cli.shell_completion import complete_override
from roost.config.document import JobFile
from roost.errors import Finding, RoostError
from roost.inventory.inventory import Inventory
from roost.planning.differences import Differences, cluster_differences, plan_differences
from roost.planning.plan import Plan
from roost.planning.preflight import availability
from roost.views.difference_text import render_differences

LIVE = "the running cluster"


@click.command("diff")
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path(), required=False)
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...", shell_complete=complete_override)
@cluster_options
@live_option
@click.option("--exit-code", "as_exit_code", is_flag=True, help="End with 6 if there are differences.")
@click.option("--all", "show_all", is_flag=True, help="Leave no line out.")
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
def command(
    before: str,
    after: str | None,
    overrides: tuple[str, ...],
    on: str | None,
    inventory: str | None,
    live: bool,
    model_parallel: bool,
    as_exit_code: bool,
    show_all: bool,
    as_json: bool,
) -> int:
    """Tell what is different between two plans: what moved, was added, is gone or has other devices.

    BEFORE and AFTER are saved plans or job files. A job file is planned on the cluster that --on, --inventory or
    --live names, or else on that of the other side's plan. KEY=VALUE overrides a value of the job file AFTER. A
    saved plan alone, with --live, is compared with the running cluster.
    """
    if after is not None and ("=" in after or after.startswith("~")) and not os.path.exists(after):  # noqa: PTH110
        raise click.UsageError(f"what is {before} compared with? {after!r} is an override.")
    check_overrides(overrides)
    where = ClusterChoice(on=on, inventory=inventory, live=live, model_parallel=model_parallel)
    try:
        if after is None:
            new = None
            old, found, findings = _with_cluster(JobFile(before), where)
        else:
            old, new = _both(JobFile(before), JobFile(after), overrides, where)
            found, findings = plan_differences(old, new), []
    except RoostError as error:
        return refused(error, before, as_json)
    names = before, after or LIVE
    if as_json:
        sides = {"before": _side(names[0], old), "after": _side(names[1], new)}
        emit_result(same=not found, **sides, **found.to_dict(), findings=findings)
    else:
        emit(render_differences(found, *names, show_all))
    tell_findings(findings)
    return DIFFERENT if found and as_exit_code else code_for(findings)


def _side(name: str, plan: Plan | None) -> dict[str, object]:
    return {"name": name, "digest": plan and plan.digest}


def _with_cluster(file: JobFile, where: ClusterChoice) -> tuple[Plan, Differences, list[Finding]]:
    """A saved plan, its differences from the running cluster, and who holds its accelerators there."""
    if not where.live:
        raise click.UsageError(f"what is {file} compared with? Name another plan or job file, or add --live.")
    saved = _read(file, (), where, None) if is_saved_plan(file) else None
    if saved is None:
        remedy = (
            f"save one with `roost plan -o`, or show the job's plan there with `roost plan {file} --live`"
        )
        raise click.UsageError(f"only a saved plan is compared with the running cluster; {remedy}.")
    there = live_snapshot()
    held = availability(saved, None, there.holders, there.inventory.nodes)
    return saved, cluster_differences(saved, there.inventory), held


def _both(
    before: JobFile, after: JobFile, overrides: tuple[str, ...], where: ClusterChoice
) -> tuple[Plan, Plan]:
    """Both plans. A job without a chosen cluster is planned on the nodes of the other side's saved plan."""
    if overrides and is_saved_plan(after):
        raise click.UsageError(f"{after} is placed already, so {overrides[0]} would change nothing.")
    if is_saved_plan(before):
        old = _read(before, (), where, None)
        return old, _read(after, overrides, where, Inventory(nodes=old.inventory.nodes))
    new = _read(after, overrides, where, None)
    return _read(before, (), where, Inventory(nodes=new.inventory.nodes)), new


def _read(
    file: JobFile, overrides: tuple[str, ...], where: ClusterChoice, otherwise: Inventory | None
) -> Plan:
    try:
        if is_saved_plan(file):
            return saved_plan(file)
        return where.planned(file, overrides, otherwise)[0]
    except RoostError as error:
        raise type(error)(*located(error.findings, str(file))) from None
