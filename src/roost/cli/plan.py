"""`roost plan`: compute a plan and show it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from roost.cli.ending import (
    FINE,
    FORMAT_VERSION,
    code_for,
    emit,
    emit_json,
    is_ascii,
    located,
    tell,
    tell_findings,
    wants_colour,
    width_of,
)
from roost.cli.where import chosen_inventory, cluster_options, placement_class

if TYPE_CHECKING:
    from roost.planning.plan import Plan


@click.command("plan")
@click.argument("config", type=click.Path())
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@cluster_options
@click.option("-o", "output", metavar="FILE", type=click.Path(), help="Save the plan as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--all", "show_all", is_flag=True, help="Leave no row of the map or the table out.")
def command(
    config: str,
    overrides: tuple[str, ...],
    on: str | None,
    inventory: str | None,
    model_parallel: bool,
    output: str | None,
    as_json: bool,
    show_all: bool,
) -> int:
    """Show where every process of a job would run: a map of the nodes, the components, and advice.

    CONFIG is the job's YAML file. KEY=VALUE overrides a value of it: cluster.num_nodes=4.
    """
    from roost.errors import RoostError
    from roost.planning.planner import plan
    from roost.planning.saved import save_plan
    from roost.views.terminal import render_plan

    _check_overrides(overrides)
    try:
        where = chosen_inventory(on, inventory)
        if where is None:
            raise click.UsageError(
                f"which cluster? Say it with --on {_likely_shape(config, overrides)}, or with --inventory FILE."
            )
        planned = plan(config, where, overrides=overrides, placement=placement_class(model_parallel))
        if output is not None:
            save_plan(planned, output)
    except RoostError as error:
        findings = located(error.findings, config)
        if as_json:
            shown = [finding.to_dict() for finding in findings]
            emit_json({"format_version": FORMAT_VERSION, "findings": shown})
        tell_findings(findings)
        return code_for(findings)
    if as_json:
        emit_json(_with_shares(planned))
        tell_findings(planned.findings)
        return FINE
    emit(
        render_plan(
            planned,
            width=width_of(sys.stdout),
            colour=wants_colour(sys.stdout),
            ascii_only=is_ascii(sys.stdout),
            show_all=show_all,
        )
    )
    if planned.findings and sys.stderr.isatty():
        tell("")
    tell_findings(planned.findings)
    if output is not None:
        tell(f"saved to {output}")
    return FINE


def _with_shares(planned: Plan) -> dict[str, Any]:
    """The plan as it is saved, and the least and the most each component is charged on an accelerator."""
    from roost.views.seats import seats

    data, shares = planned.to_dict(), seats(planned).shares(planned.shares)
    for name, component in data["components"].items():
        component["share"] = list(shares[name]) if name in shares else None
    return data


def _check_overrides(overrides: tuple[str, ...]) -> None:
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            shape = re.fullmatch(r"\d+[xX]\d+.*", override)
            hint = f"Did you mean --on {override}?" if shape else "Write cluster.num_nodes=4, for example."
            raise click.UsageError(f"{override!r} is not an override of the form KEY=VALUE. {hint}")


def _likely_shape(config: str, overrides: tuple[str, ...]) -> str:
    """The job's number of nodes, of 8 accelerators each. An unreadable job raises, which is what matters then."""
    from roost.config.job import read_job

    job, _ = read_job(config, overrides)
    needed = -(-job.layout.reserved // 8) if job.layout else 1
    return f"{job.num_nodes or min(max(needed, 1), 100_000)}x8"
