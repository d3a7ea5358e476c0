"""`roost show`: shows a saved plan as `roost plan` shows one."""

from __future__ import annotations

from typing import Any

import click

from roost.cli.plan_output import PlanOutput, plan_output_options
from roost.planning.files import load_plan


@click.command("show")
@click.argument("plan", type=click.Path())
@plan_output_options
def command(plan: str, **output: Any) -> int:
    """Show a saved plan: what `roost plan -o` and `roost plan --json` wrote."""
    shown = PlanOutput(**output)
    shown.check(plan)
    return shown.show(plan, lambda: (load_plan(plan), ()))
