"""The plan that a verb is about: of a job file on the chosen cluster, or saved in a file."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import click

from roost.cli.chosen_cluster import check_one, chosen_inventory, live_snapshot, placement_class
from roost.config.document import JobFile
from roost.config.job import read_job
from roost.config.text_files import is_pipe, read_text
from roost.errors import ConfigurationError, error_for, errors_in
from roost.inventory.inventory import Inventory
from roost.planning.checks import idle
from roost.planning.files import MAX_BYTES, load_plan, read_plan
from roost.planning.plan import Plan
from roost.planning.planner import plan
from roost.planning.preflight import Holder, availability
from roost.secret_names import hide_rest


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChoice:
    """What the options say about the cluster and the way of placing."""

    on: str | None = None
    inventory: str | None = None
    live: bool = False
    model_parallel: bool = False

    def __post_init__(self) -> None:
        check_one(self.on, self.inventory, self.live)

    @property
    def is_given(self) -> bool:
        return self.live or self.on is not None or self.inventory is not None

    def planned(
        self, config: JobFile, overrides: tuple[str, ...], otherwise: Inventory | None = None
    ) -> tuple[Plan, tuple[Holder, ...]]:
        """The plan of a job, and the holders of accelerators of a live cluster.

        Without a choice the job is planned on the cluster `otherwise`, and refused where there is none.
        """
        if self.live:
            return _planned_live(config, overrides, self.model_parallel)
        where = chosen_inventory(self.on, self.inventory) or otherwise
        if where is None:
            which = f"which cluster? Say it with --on {_likely_shape(config, overrides)}"
            raise click.UsageError(f"{which}, with --inventory FILE, or with --live.")
        return plan(config, where, overrides=overrides, placement=placement_class(self.model_parallel)), ()


def is_saved_plan(file: JobFile) -> bool:
    """Whether a file holds a saved plan, and not a job: a job has no `format_version`."""
    try:
        # What has come from a pipe cannot be read again, so that error is raised here.
        text = file.text if is_pipe(file.path) else read_text(file.path, MAX_BYTES)
    except ConfigurationError:
        if is_pipe(file.path):
            raise
        return False  # whoever reads it says why it cannot be read
    return text.lstrip().startswith("{") and '"format_version"' in text


def saved_plan(file: JobFile) -> Plan:
    return read_plan(file.text, str(file)) if is_pipe(file.path) else load_plan(file.path)


def check_overrides(overrides: tuple[str, ...]) -> None:
    for override in overrides:
        if "=" not in override and not override.startswith("~"):
            shape = re.fullmatch(r"\d+[xX]\d+.*", override)
            hint = f"Did you mean --on {override}?" if shape else "Write cluster.num_nodes=4, for example."
            what = f"{hide_rest(override)!r} is not an override of the form KEY=VALUE."
            raise click.UsageError(f"{what} {hint}")


def _planned_live(
    config: JobFile, overrides: tuple[str, ...], model_parallel: bool
) -> tuple[Plan, tuple[Holder, ...]]:
    """A plan for the running cluster, with findings about what others hold there, and these holders."""
    job, problems = read_job(config, overrides)
    if errors_in(problems):
        raise error_for(problems)  # before Ray is even imported
    found = live_snapshot()
    placement = placement_class(model_parallel)
    planned = plan(config, found.inventory, overrides=overrides, placement=placement)
    pure = idle(planned)  # computed without knowing the holders
    others = [finding for finding in planned.findings if finding not in pure]
    held = availability(planned, job.layout, found.holders)
    findings = (*others, *idle(planned, found.holders), *held)
    return replace(planned, findings=findings), found.holders


def _likely_shape(config: JobFile, overrides: tuple[str, ...]) -> str:
    """A shape to suggest: the job's number of nodes, of 8 accelerators each. A job that is wrong raises here."""
    job, _ = read_job(config, overrides)
    needed = -(-job.layout.reserved // 8) if job.layout else 1
    return f"{job.num_nodes or min(max(needed, 1), 100_000)}x8"
