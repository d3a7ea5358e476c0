"""The options that say which cluster to plan for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from roost.cli.options import all_of
from roost.config.document import Document
from roost.config.job import read_job
from roost.config.placement_editing import other_rules, with_rules
from roost.errors import ConfigurationError, error_for, errors_in
from roost.inventory.inventory import Inventory
from roost.planning.compiler import fitted
from roost.planning.component_placement import ComponentPlacement
from roost.planning.model_parallel import ModelParallelComponentPlacement

if TYPE_CHECKING:
    from roost.engine.reservation.cluster_snapshot import ClusterSnapshot

model_parallel_option = click.option(
    "--model-parallel", is_flag=True, help="Place as ModelParallelComponentPlacement does."
)
live_option = click.option(
    "--live", is_flag=True, help="The cluster: the Ray that RAY_ADDRESS names, or yours on this machine."
)
inventory_option = click.option(
    "--inventory", metavar="FILE", type=click.Path(), help="The cluster, from an inventory file."
)
cluster_options = all_of(
    click.option("--on", metavar="SHAPE", help="The cluster, such as 4x8 or 2x8:A800,1x8:4090,2x0."),
    inventory_option,
    model_parallel_option,
)


def check_one(on: str | None, inventory: str | None, live: bool = False) -> None:
    given = [("--on", on is not None), ("--inventory", inventory is not None), ("--live", live)]
    names = [name for name, is_given in given if is_given]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(names)} each describe the cluster; give one of them.")


def chosen_inventory(on: str | None, inventory: str | None) -> Inventory | None:
    check_one(on, inventory)
    if inventory is not None:
        return Inventory.load(inventory)
    if on is None:
        return None
    try:
        return Inventory.parse(on)
    except ConfigurationError as error:
        problem = error.findings[0]
        raise click.BadParameter(f"{problem.what}; {problem.remedy}", param_hint="--on") from None


def as_the_job_groups_it(inventory: Inventory, document: Document, profiled: Iterable[str]) -> Inventory:
    """The nodes that a job uses, in the node groups that it defines. Raises the job's problems.

    The present placement of profiled components is not read: they get another one.
    """
    if isinstance(document.data.get("cluster"), dict):
        document = placed_anew(document, dict.fromkeys(profiled, "0"))
    job, findings = read_job(document, there=inventory.groups)
    found: Inventory | None = None
    if not errors_in(findings):
        found, more = fitted(job, inventory)
        findings += more
    if found is None or errors_in(findings):
        raise error_for(findings)
    return found


def placed_anew(document: Document, placement: Mapping[str, Any]) -> Document:
    """A job with this placement in place of its layout and of its own rules for the same components."""
    placed = with_rules(document, {**other_rules(document, placement), **placement})
    placed.data["cluster"].pop("layout", None)
    return placed


def placement_class(model_parallel: bool) -> type[ComponentPlacement]:
    return ModelParallelComponentPlacement if model_parallel else ComponentPlacement


def live_snapshot() -> ClusterSnapshot:
    """The nodes of the Ray that RAY_ADDRESS names, or of one that this user runs here, and who holds accelerators."""
    from roost.engine.reservation.cluster_snapshot import take_snapshot

    return take_snapshot()
