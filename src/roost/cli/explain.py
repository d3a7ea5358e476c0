"""`roost explain`: tells why a process sits where it does, or what a code means."""

from __future__ import annotations

import re
from dataclasses import asdict
from functools import partial

import click

from roost.cli.chosen_cluster import cluster_options, live_option
from roost.cli.chosen_job import job_arguments
from roost.cli.chosen_plan import ClusterChoice, check_overrides, is_saved_plan, saved_plan
from roost.cli.code_pages import code_page, render_code_page
from roost.cli.ending import FINE, emit, emit_result, refused
from roost.cli.shell_completion import complete_explained
from roost.codes import CODES
from roost.config.document import JobFile
from roost.config.job import Job, read_job
from roost.errors import RoostError, nearest
from roost.planning.explanation import explain
from roost.planning.plan import Plan
from roost.views.explanation_text import render_explanation

_CODE = re.compile(r"[A-Za-z]{2}\d{3}", re.ASCII)


@click.command("explain")
@partial(job_arguments, metavar="CODE | CONFIG COMPONENT[:RANK] [KEY=VALUE]...", complete=complete_explained)
@cluster_options
@live_option
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as JSON.")
def command(
    config: JobFile,
    overrides: tuple[str, ...],
    on: str | None,
    inventory: str | None,
    live: bool,
    model_parallel: bool,
    as_json: bool,
) -> int:
    """Tell why a process sits where it does, or what a code means.

    With a CODE such as RP104: its meaning, an example that produces it, and the fix. With the CONFIG of a job or a
    saved plan, and a process such as rollout:3: the rule in the file, how ranks were counted, what else sits on the
    same devices, and its environment. Without a rank, about the component.
    """
    if not overrides:
        if not _CODE.fullmatch(str(config)) or config.path.exists():
            raise click.UsageError(
                "which process? Name one such as rollout:3, or a component; or give a code."
            )
        return _explain_code(str(config).upper(), as_json)
    process, overrides = overrides[0], overrides[1:]
    name, _, number = process.partition(":")
    if not name or (number and not number.isdecimal()) or "=" in process:
        raise click.UsageError(f"{process!r} is no process; write COMPONENT:RANK, such as rollout:3.")
    check_overrides(overrides)
    where = ClusterChoice(on=on, inventory=inventory, live=live, model_parallel=model_parallel)
    try:
        plan, job = _read(config, overrides, where)
        world_size = plan.component(name).world_size
        rank = int(number.lstrip("0")[:12] or 0) if number else None
        if rank is not None and rank >= world_size:
            raise click.UsageError(f"{name} has ranks 0-{world_size - 1}, and no {rank}.")
        found = explain(plan, name, rank, job)
    except RoostError as error:
        return refused(error, str(config), as_json)
    if as_json:
        data = asdict(found)
        if data["where"] is not None:
            del data["where"]["excerpt"]  # the line may hold a secret
        emit_result(plan=plan.digest, explanation=data)
    else:
        emit(render_explanation(found, plan.job_file))
    return FINE


def _read(file: JobFile, overrides: tuple[str, ...], where: ClusterChoice) -> tuple[Plan, Job | None]:
    if not is_saved_plan(file):
        return where.planned(file, overrides)[0], read_job(file, overrides)[0]
    if overrides or where.is_given:
        raise click.UsageError(f"{file} is a saved plan, which is placed already: no cluster, no overrides.")
    return saved_plan(file), None


def _explain_code(code: str, as_json: bool) -> int:
    if code not in CODES:
        raise click.UsageError(f"there is no code {code}; {nearest(code, CODES)}.")
    page = code_page(code)
    if as_json:
        emit_result(page=page.to_dict())
    else:
        emit(render_code_page(page))
    return FINE
