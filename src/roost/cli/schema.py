"""`roost schema`: prints the JSON Schema of job files, or of what a verb prints as JSON."""

from __future__ import annotations

import click

from roost.cli.ending import FINE, emit_json
from roost.cli.output_schemas import OUTPUTS, output_schema
from roost.config.job_schema import job_schema


@click.command("schema")
@click.option("--of", "verb", type=click.Choice(list(OUTPUTS)), help="The JSON output of this verb instead.")
def command(verb: str | None) -> int:
    """Print the JSON Schema of job files: an editor checks and completes them with it."""
    emit_json(job_schema() if verb is None else output_schema(verb))
    return FINE
