"""`roost plan`: computes a plan and shows it."""

from __future__ import annotations

from typing import Any

import click

from roost.cli.chosen_cluster import cluster_options, live_option
from roost.cli.chosen_job import job_arguments
from roost.cli.chosen_plan import ClusterChoice, check_overrides
from roost.cli.plan_output import PlanOutput, plan_output_options
from roost.config.document import JobFile


@click.command("plan")
@job_arguments
@cluster_options
@live_option
@click.option("-o", "output", metavar="FILE", type=click.Path(), help="Save the plan as JSON.")
@plan_output_options
def command(
    config: JobFile,
    overrides: tuple[str, ...],
    on: str | None,
    inventory: str | None,
    live: bool,
    model_parallel: bool,
    **output: Any,
) -> int:
    """Show where every process of a job would run: a map of the nodes, the components, and advice.

    CONFIG is the job's YAML file. KEY=VALUE overrides a value of it: cluster.num_nodes=4.
    """
    check_overrides(overrides)
    shown = PlanOutput(**output)
    shown.check(str(config), inventory)
    where = ClusterChoice(on=on, inventory=inventory, live=live, model_parallel=model_parallel)
    return shown.show(str(config), lambda: where.planned(config, overrides))
