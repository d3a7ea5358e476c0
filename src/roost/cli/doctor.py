"""`roost doctor`: what is wrong with this machine, or with a running cluster."""

from __future__ import annotations

import os
import sys

import click

from roost.cli.chosen_cluster import live_option
from roost.cli.ending import FINE, FOUND, emit, emit_result, tell, wants_colour
from roost.cli.output_schemas import CheckedMachine
from roost.cli.running_job import named_or_own
from roost.engine.health.diagnosis import diagnose_cluster, diagnose_machine
from roost.engine.health.machine_facts import MachineFacts
from roost.engine.health.machine_inspection import inspect_machine
from roost.engine.job.job_folder import jobs_folder
from roost.errors import counted
from roost.views.coloured_findings import render_findings


@click.command("doctor")
@click.option("--address", metavar="ADDRESS", help="Check the cluster at this address.")
@live_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(address: str | None, live: bool, as_json: bool) -> int:
    """Tell what is wrong with this machine, or with --live or --address what is wrong with a running cluster.

    On a cluster every node is asked: versions, authentication, node ranks, clocks, ports, accelerators, limits, shared
    memory, and leftovers of jobs that have ended. The exit code is 1 if anything is found, a warning too.
    """
    if live or address is not None:
        from roost.engine.operating.cluster_inspection import inspect_cluster

        cluster = inspect_cluster(named_or_own(address))
        checked = [(one.machine, one.is_head) for one in cluster.nodes]
        findings = [*cluster.findings, *diagnose_cluster(cluster.nodes)]
        subject = f"{counted(len(checked), 'node')} of the Ray at {cluster.address}"
    else:
        here = inspect_machine(jobs_folder(), os.environ)
        checked, findings, subject = [(here, False)], diagnose_machine(here), f"this machine, {here.host}"
    if as_json:
        emit_result(machines=[_data(*one) for one in checked], findings=findings)
    else:
        if findings:
            emit(render_findings(findings, colour=wants_colour(sys.stdout)))
        tell(f"checked {subject}: {counted(len(findings), 'finding') if findings else 'fine'}")
        if not live and address is None:
            tell("--live checks the cluster that RAY_ADDRESS names, or yours on this machine")
    return FOUND if findings else FINE


def _data(facts: MachineFacts, is_head: bool) -> dict[str, object]:
    names = (name for name in CheckedMachine.model_fields if name != "is_head")
    return {"is_head": is_head, **{name: getattr(facts, name) for name in names}}
