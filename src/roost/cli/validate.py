"""`roost validate`: lists everything that is wrong with job files, without a cluster."""

from __future__ import annotations

import click

from roost.cli.chosen_cluster import chosen_inventory, cluster_options, placement_class
from roost.cli.chosen_job import jobs_arguments
from roost.cli.ending import (
    FINE,
    FOUND,
    NO_FIT,
    code_for,
    emit,
    emit_result,
    located,
    tell_findings,
)
from roost.config.document import Document, JobFile, as_written
from roost.config.job import read_job
from roost.config.program import program_problems
from roost.errors import Finding, RoostError, counted, errors_in
from roost.inventory.group_reading import build_groups
from roost.inventory.inventory import Inventory


@click.command("validate")
@jobs_arguments
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(
    files: tuple[JobFile, ...],
    overrides: tuple[str, ...],
    on: str | None,
    inventory: str | None,
    model_parallel: bool,
    as_json: bool,
) -> int:
    """List everything that is wrong with job files, all problems of all files at once.

    No cluster is needed. With --on or --inventory it also says whether the jobs fit there. KEY=VALUE overrides
    a value in each file.
    """
    if model_parallel and on is None and inventory is None:
        raise click.UsageError("--model-parallel needs a cluster: add --on or --inventory.")
    results: list[tuple[str, list[Finding]]] = []
    where = None
    try:
        where = chosen_inventory(on, inventory)
    except RoostError as error:  # the jobs can be checked without an inventory
        results.append((str(inventory), located(error.findings, str(inventory))))
    results += [(str(file), problems_of(file, where, model_parallel, overrides)) for file in files]
    codes = [code_for(findings, where is not None) for _, findings in results]
    tell_findings([finding for _, findings in results for finding in findings])
    if as_json:
        shown = [
            {"file": file, "ok": code == FINE, "findings": [finding.to_dict() for finding in findings]}
            for (file, findings), code in zip(results, codes, strict=True)
        ]
        emit_result(files=shown)
    else:
        for (file, findings), code in zip(results, codes, strict=True):
            emit(f"{file}: {_verdict(findings, code)}\n")
    return FOUND if FOUND in codes else max(codes)


def problems_of(
    file: str | JobFile,
    where: Inventory | None,
    model_parallel: bool = False,
    overrides: tuple[str, ...] = (),
) -> list[Finding]:
    try:
        document = as_written(file, overrides)
        findings = _placement_problems(document, where, model_parallel)
    except RoostError as error:
        return located(error.findings, str(file))
    return located([*findings, *program_problems(document)], str(file))


def _placement_problems(document: Document, where: Inventory | None, model_parallel: bool) -> list[Finding]:
    if where is None:
        job, findings = read_job(document)
        _, more = build_groups(job.groups, job.num_nodes, job.document)
        return [*findings, *more]
    try:
        return list(placement_class(model_parallel)(document, where).findings)
    except RoostError as error:
        return list(error.findings)


def _verdict(findings: list[Finding], code: int) -> str:
    errors = len(errors_in(findings))
    numbers = {"error": errors, "warning": len(findings) - errors}
    parts = [counted(number, noun) for noun, number in numbers.items() if number]
    verdict = ["fine"] if code == FINE else ["does not fit"] if code == NO_FIT else []
    return ", ".join([*verdict, *parts])
