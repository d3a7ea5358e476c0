"""`roost simulate`: replays an arrangement item by item, with tails if asked."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from roost.cli.chosen_cluster import as_the_job_groups_it, chosen_inventory, inventory_option
from roost.cli.ending import FINE, emit, emit_result, is_ascii, width_of
from roost.cli.options import profile_option, read_tails, tail_option
from roost.config.document import JobFile, load
from roost.config.plain_data import read_json
from roost.config.text_files import read_text
from roost.config.yaml_text import MAX_BYTES
from roost.errors import ConfigurationError
from roost.suggesting.arrangement import Arrangement, read_arrangement
from roost.suggesting.checker import Checker
from roost.suggesting.problem import pose
from roost.suggesting.profile import read_profile
from roost.suggesting.simulator import simulate
from roost.suggesting.timeline import timeline
from roost.views.timeline_pictures import timeline_text


@click.command("simulate")
@click.argument("arrangement", type=click.Path())
@profile_option
@click.option("--on", metavar="SHAPE", help="The cluster, such as 4x8.")
@inventory_option
@click.option(
    "--job", metavar="FILE", type=click.Path(), help="The job, for the node groups that it defines."
)
@click.option("--groups", metavar="A,B", help="The node groups to use.")
@tail_option
@click.option("--seed", type=click.IntRange(0), default=0, help="Of the random lengths.")
@click.option("--max-staleness", type=click.IntRange(0), help="Iterations the weights may be behind.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    arrangement: str,
    profile: str,
    on: str | None,
    inventory: str | None,
    job: str | None,
    groups: str | None,
    tails: tuple[str, ...],
    seed: int,
    max_staleness: int | None,
    as_json: bool,
) -> int:
    """Replay an arrangement: the output of `roost suggest --json`, or its `tree`.

    Shows the seconds of an iteration beside those of the model, and a timeline.
    """
    where = chosen_inventory(on, inventory)
    if where is None:
        raise click.UsageError("which cluster? Say it with --on 4x8 or with --inventory FILE.")
    read = read_profile(profile)
    if job is not None:
        where = as_the_job_groups_it(where, load(JobFile(job)), read.components)
    lengths = read_tails(tails, list(read.components))
    problem = pose(read, where, groups)
    tree = _read(arrangement)
    checker, data = Checker(problem), tree.to_dict()
    wrong = list(checker.problems(data)) or list(checker.overflows(checker.state(data)))
    if wrong:
        remedy = "give the profile and the cluster that it was made for"
        raise ConfigurationError(code="RS105", what=f"{arrangement}: {wrong[0]}", remedy=remedy)
    done = simulate(tree, problem, tails=lengths, seed=seed, most_stale=max_staleness)
    if as_json:
        emit_result(
            seconds=done.seconds,
            model_seconds=done.model_seconds,
            error=done.error,
            staleness=done.staleness,
            activities=[asdict(one) for one in done.activities],
        )
        return FINE
    off = done.seconds / done.model_seconds - 1
    emit(f"{done.seconds:.6g} s per iteration; the model says {done.model_seconds:.6g} s ({off:+.1%})\n")
    if problem.profile.asynchronous:
        emit(f"weights are at most {done.staleness} iterations behind\n")
    shown = timeline(tree, problem, done)
    emit("\n" + timeline_text(shown, width_of(sys.stdout), is_ascii(sys.stdout)) + "\n")
    return FINE


def _read(path: str) -> Arrangement:
    try:
        return read_arrangement(read_json(read_text(Path(path), MAX_BYTES)))
    except (RecursionError, ValueError) as error:
        if isinstance(error, ConfigurationError):
            raise
        remedy = "save one with `roost suggest --json`"
        raise ConfigurationError(code="RS105", what=f"{path} is not JSON", remedy=remedy) from None
