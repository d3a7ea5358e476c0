"""`roost plan`: computes a plan and shows it."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from datetime import date
from typing import Any

import click

from roost.cli.chosen_cluster import check_one, chosen_inventory, cluster_options, placement_class
from roost.cli.ending import (
    FINE,
    FORMAT_VERSION,
    code_for,
    code_of,
    emit,
    emit_json,
    is_ascii,
    located,
    tell,
    tell_findings,
    wants_colour,
)
from roost.cli.terminal_width import width_of
from roost.config.job import read_job
from roost.errors import RoostError, error_for
from roost.planning.checks import idle
from roost.planning.files import write_file
from roost.planning.plan import Plan
from roost.planning.plan_files import plan_text
from roost.planning.planner import plan
from roost.planning.preflight import Holder, availability
from roost.secret_names import hide_rest
from roost.views.occupancy_masks import occupancy_masks
from roost.views.page import render_page
from roost.views.svg import render_svg
from roost.views.terminal import render_plan


@click.command("plan")
@click.argument("config", type=click.Path())
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@cluster_options
@click.option(
    "--live", is_flag=True, help="The cluster: the Ray that RAY_ADDRESS names, or yours on this machine."
)
@click.option("-o", "output", metavar="FILE", type=click.Path(), help="Save the plan as JSON.")
@click.option("--svg", metavar="FILE", type=click.Path(), help="Save a picture of the plan.")
@click.option("--html", metavar="FILE", type=click.Path(), help="Save the plan as a page.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--all", "show_all", is_flag=True, help="Leave no row of the map or the table out.")
def command(
    config: str,
    overrides: tuple[str, ...],
    on: str | None,
    inventory: str | None,
    live: bool,
    model_parallel: bool,
    output: str | None,
    svg: str | None,
    html: str | None,
    as_json: bool,
    show_all: bool,
) -> int:
    """Show where every process of a job would run: a map of the nodes, the components, and advice.

    CONFIG is the job's YAML file. KEY=VALUE overrides a value of it: cluster.num_nodes=4.
    """
    _check_overrides(overrides)
    check_files([config, inventory], [output, svg, html])
    check_one(on, inventory, live)
    saved: list[str] = []
    held: tuple[Holder, ...] = ()
    try:
        if live:
            planned, held = _planned_live(config, overrides, model_parallel)
        else:
            where = chosen_inventory(on, inventory)
            if where is None:
                raise click.UsageError(
                    f"which cluster? Say it with --on {_likely_shape(config, overrides)}, with --inventory FILE, "
                    "or with --live."
                )
            planned = plan(config, where, overrides=overrides, placement=placement_class(model_parallel))
        if output is not None:
            write_file(output, plan_text(planned), private=True)
            saved.append(output)
        for path, text in _pictures(planned, svg, html, show_all, config, held).items():
            write_file(path, text, private=False)
            saved.append(path)
    except RoostError as error:
        findings = located(error.findings, config)
        if as_json:
            shown = [finding.to_dict() for finding in findings]
            emit_json({"format_version": FORMAT_VERSION, "findings": shown})
        tell_findings(findings)
        _tell_saved(saved)
        return code_of(error)
    if as_json:
        emit_json(_in_full(planned))
    else:
        _show(planned, show_all, held)
    tell_findings(planned.findings)
    _tell_saved(saved)
    return code_for(planned.findings)


def _planned_live(
    config: str, overrides: tuple[str, ...], model_parallel: bool
) -> tuple[Plan, tuple[Holder, ...]]:
    """A plan for the running cluster, with findings about what others hold there, and these holders."""
    job, problems = read_job(config, overrides)
    if code_for(problems) != FINE:
        raise error_for(problems)  # before Ray is even imported

    from roost.engine.reservation.cluster_snapshot import take_snapshot

    found = take_snapshot()
    placement = placement_class(model_parallel)
    planned = plan(config, found.inventory, overrides=overrides, placement=placement)
    pure = idle(planned)  # computed without knowing the holders
    others = [finding for finding in planned.findings if finding not in pure]
    held = availability(planned, job.layout, found.holders)
    findings = (*others, *idle(planned, found.holders), *held)
    return replace(planned, findings=findings), found.holders


def _pictures(
    planned: Plan,
    svg: str | None,
    html: str | None,
    show_all: bool,
    config: str,
    held: tuple[Holder, ...],
) -> dict[str, str]:
    """The path and the text of each picture asked for."""
    job, today = os.path.basename(config), date.today()  # noqa: PTH119
    files: dict[str, str] = {}
    if svg is not None:
        files[svg] = render_svg(planned, show_all=show_all, job=job, day=today, held=held)
    if html is not None:
        files[html] = render_page(planned, show_all=show_all, job=job, day=today, held=held)
    return files


def _tell_saved(paths: list[str]) -> None:
    for path in paths:
        tell(f"saved to {path}")


def _show(planned: Plan, show_all: bool, held: tuple[Holder, ...]) -> None:
    emit(
        render_plan(
            planned,
            width=width_of(sys.stdout),
            colour=wants_colour(sys.stdout),
            ascii_only=is_ascii(sys.stdout),
            show_all=show_all,
            held=held,
        )
    )
    if planned.findings and sys.stderr.isatty():
        tell("")


def _in_full(planned: Plan) -> dict[str, Any]:
    """The saved form of a plan, with every placement, and the least and most a component is charged somewhere."""
    data, shares = planned.to_dict(), occupancy_masks(planned).shares(planned.shares)
    for name, component in data["components"].items():
        component["placements"] = [place.to_dict() for place in planned.components[name].members]
        component["share"] = list(shares[name]) if name in shares else None
    return data


def check_files(read: list[str | None], written: list[str | None]) -> None:
    """Refuse to write over a file that is read, or to write two files to one place."""
    wanted = [path for path in written if path is not None]
    if not {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}.isdisjoint(wanted):
        raise click.UsageError("-o, --svg and --html write files. --json prints the plan to stdout.")
    places = [_place(path) for path in wanted]
    if len(set(places)) < len(places):
        raise click.UsageError("-o, --svg and --html write files of their own; give each another name.")
    for path in read:
        if path is not None and _place(path) in places:
            raise click.UsageError(f"{path} is read, and would be replaced; write to another file.")


def _place(path: str) -> str:
    try:
        return os.path.realpath(path)
    except FileNotFoundError:  # the working directory was deleted: reading and writing say so
        return path


def _check_overrides(overrides: tuple[str, ...]) -> None:
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            shape = re.fullmatch(r"\d+[xX]\d+.*", override)
            hint = f"Did you mean --on {override}?" if shape else "Write cluster.num_nodes=4, for example."
            raise click.UsageError(
                f"{hide_rest(override)!r} is not an override of the form KEY=VALUE. {hint}"
            )


def _likely_shape(config: str, overrides: tuple[str, ...]) -> str:
    """A shape to suggest: the job's number of nodes, of 8 accelerators each. A job that is wrong raises here."""
    job, _ = read_job(config, overrides)
    needed = -(-job.layout.reserved // 8) if job.layout else 1
    return f"{job.num_nodes or min(max(needed, 1), 100_000)}x8"
