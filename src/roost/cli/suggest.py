"""`roost suggest`: finds the best placement of a job, and shows the proof and the reasons."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from roost.cli.chosen_cluster import (
    as_the_job_groups_it,
    check_one,
    chosen_inventory,
    inventory_option,
    live_option,
    live_snapshot,
    placed_anew,
)
from roost.cli.chosen_job import job_arguments
from roost.cli.chosen_plan import check_overrides
from roost.cli.ending import (
    code_for,
    emit,
    emit_result,
    is_ascii,
    refused,
    tell,
    tell_findings,
    width_of,
)
from roost.cli.options import profile_option, read_tails, tail_option
from roost.cli.plan_output import check_files, drawn
from roost.config.document import JobFile, load, parse
from roost.config.placement_editing import with_placement
from roost.config.text_files import is_pipe
from roost.errors import ConfigurationError, RoostError, errors_in
from roost.inventory.inventory import Inventory
from roost.planning.files import write_file
from roost.planning.plan import Plan
from roost.planning.planner import plan
from roost.planning.preflight import availability
from roost.suggesting.profile import read_profile
from roost.suggesting.simulator import simulate
from roost.suggesting.suggestion import suggest
from roost.suggesting.timeline import timeline
from roost.views.suggestion_views import SuggestionReport, render_suggestion, suggestion_page


@click.command("suggest")
@job_arguments
@profile_option
@click.option("--on", metavar="SHAPE", help="The cluster, such as 4x8.")
@inventory_option
@live_option
@click.option(
    "--groups",
    metavar="A,B",
    help="The node groups to use; default: those of the profile, and the whole cluster if a component has none there.",
)
@tail_option
@click.option(
    "--by-replay", is_flag=True, help="Take the arrangement that is fastest when replayed, not by the model."
)
@click.option("--write", is_flag=True, help="Put the placement into CONFIG, keeping its comments.")
@click.option(
    "--html", metavar="FILE", type=click.Path(), help="Save a page with the timeline of an iteration."
)
@click.option("--json", "as_json", is_flag=True, help="Print the suggestion as JSON.")
def command(
    config: JobFile,
    overrides: tuple[str, ...],
    profile: str,
    on: str | None,
    inventory: str | None,
    live: bool,
    groups: str | None,
    tails: tuple[str, ...],
    by_replay: bool,
    write: bool,
    html: str | None,
    as_json: bool,
) -> int:
    """Find the placement with the shortest iteration, and prove that none is shorter.

    CONFIG is the job's YAML file; its node groups and its present placement are used.
    """
    check_overrides(overrides)
    check_files([str(config), inventory, profile], [html])
    check_one(on, inventory, live)
    if write and is_pipe(config.path):
        raise click.UsageError("--write changes the file CONFIG, which is a pipe here.")
    if not live and on is None and inventory is None:
        raise click.UsageError("which cluster? Say it with --on 4x8, with --inventory FILE, or with --live.")
    try:
        document = load(config, overrides)
        section = document.data.get("cluster")
        cluster = section if isinstance(section, dict) else {}
        read = read_profile(profile)
        lengths = read_tails(tails, list(read.components))
        there_now = live_snapshot() if live else None
        where = there_now.inventory if there_now else chosen_inventory(on, inventory)
        assert where is not None
        there = as_the_job_groups_it(where, document, read.components)
        suggestion = suggest(read, there, groups=groups, present=_present(document, where, cluster))
        replays = suggestion.replays(lengths)
        if by_replay:
            suggestion = suggestion.with_arrangement(replays[0].arrangement)
        simulation = simulate(suggestion.arrangement, suggestion.problem, tails=lengths)
        report = SuggestionReport(
            job=Path(str(config)).name,
            suggestion=suggestion,
            verification=suggestion.verify(),
            timeline=timeline(suggestion.arrangement, suggestion.problem, simulation),
            replays=replays,
            tails=lengths,
            worth=suggestion.worth_measuring(),
        )
        planned = plan(placed_anew(document, suggestion.placement), where)
        held = availability(planned, None, there_now.holders if there_now else ())
        if write and cluster.get("layout") is not None:
            what = "the placement cannot be written into a job that has a cluster.layout"
            remedy = "remove the layout first: it places components too"
            raise ConfigurationError(code="RS102", what=what, remedy=remedy)
        if html is not None:
            write_file(html, suggestion_page(report), private=False)
        if write:
            text = JobFile(config).text  # as it is now
            new = with_placement(text, parse(text, str(config)), suggestion.placement)
            write_file(config, new, private=False)
    except RoostError as error:
        return refused(error, str(config), as_json)
    if as_json:
        emit_result(**report.to_dict(), findings=held)
    else:
        emit(render_suggestion(report, width=width_of(sys.stdout), ascii_only=is_ascii(sys.stdout)))
        emit("\n" + drawn(planned, sys.stdout))
    tell_findings(held)
    for path in filter(None, (html, config if write else None)):
        tell(f"saved to {path}")
    return code_for(held)


def _present(document: Any, where: Inventory, cluster: dict[str, Any]) -> Plan | None:
    """The plan of the job's present placement, if it has one that can be planned."""
    if not cluster.get("component_placement"):
        return None
    try:
        return plan(document, where)
    except ConfigurationError as error:
        tell(f"the present placement cannot be compared: {errors_in(error.findings)[0].what}")
        return None
