"""`roost profile`: runs a job briefly at several sizes, and writes down what each component costs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from typing import Any

import click
import yaml

from roost.cli.chosen_cluster import check_one, chosen_inventory, live_snapshot
from roost.cli.chosen_job import job_arguments
from roost.cli.chosen_plan import check_overrides
from roost.cli.ending import FINE, emit, emit_line, refused, tell
from roost.cli.interrupts import interrupts
from roost.cli.launch import LaunchOptions, prepared, run_job
from roost.cli.options import seconds_option
from roost.cli.plan_output import check_files
from roost.config.document import Document, JobFile, as_written
from roost.config.job import Job, read_job
from roost.config.placement_editing import rules_of, with_rules
from roost.config.plain_data import plain_mapping
from roost.config.program import driver_config
from roost.engine.cluster_options import wants_inline
from roost.engine.connection.embedded import embedded
from roost.engine.run import Run
from roost.engine.run_measures import iterations_of, seconds_of
from roost.errors import ConfigurationError, RoostError, error_for, errors_in, nearest
from roost.planning.component_plan import ComponentPlan
from roost.planning.files import write_file
from roost.planning.plan import Plan
from roost.planning.planner import plan
from roost.suggesting.measured_profile import (
    SECTION,
    Measured,
    about,
    by_group,
    earlier_profile,
    merged_profile,
    read_section,
)
from roost.suggesting.profile import read_profile


@click.command("profile")
@job_arguments
@click.option(
    "--sizes",
    multiple=True,
    required=True,
    metavar="NAMES=A,B,C",
    help="Numbers of accelerators of a component, or of several: actor,rollout=1,2,4. Runs the job once for each; "
    "several --sizes go along with each other. For components without accelerators, numbers of processes.",
)
@click.option("--on", metavar="SHAPE", help="Run on an embedded Ray of this shape, such as 2x4.")
@click.option("--live", is_flag=True, help="Run on the Ray that RAY_ADDRESS names, or yours on this machine.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Write the profile there after each run; what it has is kept.",
)
@seconds_option("--timeout", 300.0, "How long nodes, and then processes, may take to be there.")
@click.option("--json", "as_json", is_flag=True, help="Print the profile as a last line of JSON.")
def command(
    config: JobFile,
    overrides: tuple[str, ...],
    sizes: tuple[str, ...],
    on: str | None,
    live: bool,
    output: str | None,
    timeout: float,
    as_json: bool,
) -> int:
    """Run a job briefly at several sizes, and merge what was measured into a profile for `roost suggest`.

    The job file says under `profile` which call there is one of in each iteration, and what cannot be measured.
    KEY=VALUE overrides a value, such as the number of steps.
    """
    check_overrides(overrides)
    check_files([str(config)], [output])
    check_one(on, None, live)
    if on is None and not live:
        raise click.UsageError("where? Say it with --on 2x4 or with --live.")
    asked = _sizes(sizes)
    runs = [
        {name: numbers[min(step, len(numbers) - 1)] for name, numbers in asked.items()}
        for step in range(max(map(len, asked.values())))
    ]
    with interrupts() as signals, ExitStack() as started:
        try:
            inline, address = wants_inline(None), None
            inline_shape = on if inline else None
            options = LaunchOptions(config=config, overrides=overrides, on=inline_shape, timeout=timeout)
            job, problems = read_job(config, overrides)
            if errors_in(problems):
                raise error_for(problems)
            section = read_section(job.document, job.rules)
            measuring = _Measuring(job, section, earlier_profile(output), output)
            measuring.check_names(asked)
            shape = chosen_inventory(on, None)
            where = live_snapshot().inventory if shape is None else shape
            present = plan(job.document, where)
            measuring.check(present, asked)
            # Everything is planned before anything runs: a mistake in the last size would cost the others.
            written = as_written(config, overrides)
            placed = [_placed(written, job, present, sizes_now, section) for sizes_now in runs]
            plans = [plan(document, where) for document in placed]
            ready = prepared(options)
            if shape is not None and not inline:
                tell(f"starting an embedded Ray: {shape}")
                address = started.enter_context(embedded(shape))
            for sizes_now, document, planned in zip(runs, placed, plans, strict=True):
                tell(f"measuring {', '.join(f'{name} at {size}' for name, size in sizes_now.items())}")
                this = replace(
                    ready,
                    document=document,
                    driver_config=driver_config(document),
                    plan=planned if inline else None,
                )
                code = run_job(this, replace(options, address=address), signals, {}, measuring.measure)
                if code != FINE:
                    what = f"the driver ended with exit code {code}, so this run was not measured"
                    refused(ConfigurationError(code="RF105", what=what), str(config), as_json)
                    return code
                signals.ending = False
                profile = {SECTION: measuring.profile()}
                read_profile(profile)  # `suggest` must be able to read it
                text = yaml.safe_dump(profile, sort_keys=False, default_flow_style=None)
                if output is not None:
                    write_file(output, text, private=False)
                    tell(f"saved to {output}")
        except RoostError as error:
            return refused(error, str(config), as_json)
        except KeyboardInterrupt:
            return signals.exit_code
    if as_json:
        emit_line(**profile)
    else:
        emit(text)
    return FINE


def _sizes(written: tuple[str, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for one in written:
        names, _, numbers = one.partition("=")
        sizes = [int(part) for part in numbers.split(",") if part.strip().isdecimal()]
        if not sizes or min(sizes) < 1 or len(sizes) != len(numbers.split(",")) or not names.strip():
            raise click.BadParameter(f"{one!r}: write NAMES=A,B,C, such as actor=1,2,4", param_hint="--sizes")
        found.update({name.strip(): sizes for name in names.split(",")})
    return found


def _placed(
    written: Document, job: Job, present: Plan, chosen: Mapping[str, int], section: Mapping[str, Any]
) -> Document:
    """The job with a placement that gives components these sizes, each from its first resource on."""
    rules = rules_of(job.document)
    for name, size in chosen.items():
        rule = rules[name] if isinstance(rules[name], dict) else {"placement": rules[name]}
        first = re.match(r"\s*(\d*)", str(rule["placement"]))
        start = int(first[1] or 0) if first else 0
        width = _width(section, present.components[name])
        if not present.components[name].members[0].holds_accelerators:
            placed = f"{start}:0-{size - 1}"
        elif size % width:
            what = f"{name}: {size} accelerators are not a multiple of what a process holds, {width}"
            remedy = "choose other sizes, or write accelerators_per_process under profile.components"
            raise ConfigurationError(code="RF105", what=what, remedy=remedy)
        else:
            placed = f"{start}-{start + size - 1}:0-{size // width - 1}"
        rules[name] = {**rule, "placement": placed}
    return with_rules(written, rules)


def _width(section: Mapping[str, Any], planned: ComponentPlan) -> int:
    """The accelerators of a process: what the section says, or what the job's placement gives it."""
    said = about(section, planned.name).get("accelerators_per_process")
    if said is not None:
        return int(said)
    return max([1, *(len(place.hardware) for place in planned.members if place.holds_accelerators)])


class _Measuring:
    """Collects the measurements of several runs."""

    def __init__(
        self, job: Job, section: Mapping[str, Any], earlier: Mapping[str, Any], output: str | None
    ) -> None:
        self.job, self.section, self.earlier, self.output = job, section, earlier, output
        self.measured: Measured = {}
        self.widths: dict[str, int] = {}
        self.groups = {name: rule.labels[0] for name, rule in job.rules.items() if len(rule.labels) == 1}

    def check_names(self, asked: Mapping[str, Any]) -> None:
        """Refuse components that the job does not place, or whose sizes the earlier profile could not take."""
        for name in asked:
            if name not in self.job.rules:
                what, remedy = f"there is no component {name!r} to measure", nearest(name, self.job.rules)
                raise ConfigurationError(code="RF105", what=what, remedy=remedy)
            if by_group(self.earlier, name) and name not in self.groups:
                what = f"{self.output} has the seconds of {name} by node group, and the job names no group for it"
                remedy = "write its node_group under component_placement, or the profile to another file"
                raise ConfigurationError(code="RF105", what=what, remedy=remedy)

    def check(self, present: Plan, asked: Mapping[str, Any]) -> None:
        """Refuse a section of which no profile could be made, whatever is measured."""
        parts = [part for name, part in present.components.items() if name in {*asked, *self.section["flow"]}]
        widths = {part.name: _width(self.section, part) for part in parts}
        made = {
            part.name: {widths[part.name] if part.members[0].holds_accelerators else 0: [1.0]}
            for part in parts
        }
        trial = merged_profile(self.section, self.earlier, made, widths, self.groups)
        document = self.job.document
        data = plain_mapping({SECTION: trial}, (SECTION,), (SECTION,))
        read_profile(Document(data, document.name, document.positions))

    def measure(self, run: Run) -> None:
        record, called = run.record(), self.section["iteration"]
        component, method = called.split(".")
        iterations = iterations_of(record, component, method)
        if iterations is None:
            what = f"too few calls of {called} to measure an iteration"
            raise ConfigurationError(code="RF105", what=what, remedy="let the driver make more iterations")
        tell(f"an iteration takes {iterations.seconds:.4g} s")
        for name, part in record.plan.components.items():
            self.widths[name] = _width(self.section, part)
            seconds = seconds_of(record, name, iterations, about(self.section, name).get("calls", ()))
            if seconds is not None:
                held = (place.devices for place in part.members if place.holds_accelerators)
                devices = set(chain.from_iterable(held))
                self.measured.setdefault(name, {}).setdefault(len(devices), []).append(seconds)
                tell(f"  {name} at {len(devices)}: {seconds:.4g} s")

    def profile(self) -> dict[str, Any]:
        return merged_profile(self.section, self.earlier, self.measured, self.widths, self.groups)
