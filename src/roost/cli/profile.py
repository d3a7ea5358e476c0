"""`roost profile`: runs a job briefly at several sizes, and writes down what each component costs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import click
import yaml

from roost.cli.chosen_cluster import check_one, chosen_inventory, live_snapshot
from roost.cli.chosen_job import job_arguments
from roost.cli.chosen_plan import check_overrides
from roost.cli.ending import FINE, emit, refused, tell
from roost.cli.interrupts import interrupts
from roost.cli.launch import LaunchOptions, prepared, run_job
from roost.cli.plan_output import check_files
from roost.config.document import Document, JobFile, load
from roost.engine.cluster_options import wants_inline
from roost.engine.connection.embedded import embedded
from roost.engine.run import Run
from roost.engine.run_measures import iterations_of, seconds_of
from roost.errors import ConfigurationError, RoostError, nearest
from roost.inventory.inventory import Inventory
from roost.planning.component_plan import ComponentPlan
from roost.planning.files import write_file
from roost.planning.planner import plan
from roost.suggesting.profile import read_profile

SECTION = "profile"
_OWN = ("calls",)  # keys of a component that say how to measure it
Measured = dict[str, dict[int, list[float]]]  # by component and size; size 0: it needs no accelerator


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
    help="Write the profile there; sizes it has are kept.",
)
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=300.0, metavar="SECONDS")
def command(
    config: JobFile,
    overrides: tuple[str, ...],
    sizes: tuple[str, ...],
    on: str | None,
    live: bool,
    output: str | None,
    timeout: float,
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
            document = load(config, overrides)
            section = _section(document)
            measured, widths = _earlier(output), dict[str, int]()
            shape = chosen_inventory(on, None)
            where = live_snapshot().inventory if shape is None else shape
            placings = [_placing(document, sizes_now, section, where) for sizes_now in runs]
            inline, address = wants_inline(None), None
            if shape is not None and not inline:
                tell(f"starting an embedded Ray: {shape}")
                address = started.enter_context(embedded(shape))
            for sizes_now, placing in zip(runs, placings, strict=True):
                options = LaunchOptions(
                    config=config,
                    overrides=(*overrides, placing),
                    on=on if inline else None,
                    address=address,
                    plan_file=None,
                    model_parallel=False,
                    skip=(),
                    job=None,
                    timeout=timeout,
                    as_json=False,
                )
                tell(f"measuring {', '.join(f'{name} at {size}' for name, size in sizes_now.items())}")
                run_job(
                    prepared(options),
                    options,
                    signals,
                    {},
                    lambda run: _measure(run, section, measured, widths),
                )
                signals.ending = False
            text = _text(section, measured, widths)
            read_profile(yaml.safe_load(text))  # `suggest` must be able to read it
            if output is not None:
                write_file(output, text, private=False)
                tell(f"saved to {output}")
        except RoostError as error:
            return refused(error, str(config), as_json=False)
        except KeyboardInterrupt:
            return signals.exit_code
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


def _section(document: Document) -> dict[str, Any]:
    """What the job file says about measuring it. The rest of its form is checked with the finished profile."""
    section = document.data.get(SECTION)
    iteration = section.get("iteration") if isinstance(section, dict) else None
    if not isinstance(section, dict) or not isinstance(iteration, str) or iteration.count(".") != 1:
        raise ConfigurationError(
            code="RF105",
            what="the job does not say what an iteration is",
            remedy="write `profile: {iteration: actor.train, batch: 512, flow: {...}}`: a call that each iteration has once",
        )
    return section


def _placing(
    document: Document, chosen: Mapping[str, int], section: Mapping[str, Any], where: Inventory
) -> str:
    """An override of the placement that gives components these sizes, each from its first resource on."""
    written = document.data["cluster"]["component_placement"]
    rules = {name.strip(): rule for names, rule in written.items() for name in names.split(",")}
    for name in chosen:
        if name not in rules:
            what, remedy = f"there is no component {name!r} to measure", nearest(name, rules)
            raise ConfigurationError(code="RF105", what=what, remedy=remedy)
    present = plan(document, where)
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
    return f"cluster.component_placement={json.dumps(rules)}"


def _width(section: Mapping[str, Any], planned: ComponentPlan) -> int:
    """The accelerators of a process: what the section says, or what the job's placement gives it."""
    said = _about(section, planned.name).get("accelerators_per_process")
    return int(
        said
        if said is not None
        else max([1, *(len(place.hardware) for place in planned.members if place.holds_accelerators)])
    )


def _about(section: Mapping[str, Any], name: str) -> dict[str, Any]:
    return dict((section.get("components") or {}).get(name) or {})


def _measure(run: Run, section: Mapping[str, Any], measured: Measured, widths: dict[str, int]) -> None:
    record = run.record()
    component, method = section["iteration"].split(".")
    iterations = iterations_of(record, component, method)
    if iterations is None:
        what = f"too few calls of {section['iteration']} to measure an iteration"
        raise ConfigurationError(code="RF105", what=what, remedy="let the driver make more iterations")
    tell(f"an iteration takes {iterations.seconds:.4g} s")
    for name, part in record.plan.components.items():
        widths[name] = _width(section, part)
        seconds = seconds_of(record, name, iterations, _about(section, name).get("calls", ()))
        if seconds is not None:
            devices = {
                (place.cluster_node_rank, device)
                for place in part.members
                if place.holds_accelerators
                for device in place.hardware
            }
            measured.setdefault(name, {}).setdefault(len(devices), []).append(seconds)
            tell(f"  {name} at {len(devices)}: {seconds:.4g} s")


def _earlier(path: str | None) -> Measured:
    """The measurements of a profile that is there already."""
    if path is None or not Path(path).exists():
        return {}
    found: Measured = {}
    for name, part in read_profile(path).components.items():
        if part.measured:
            found[name] = {size: [seconds] for size, seconds in part.measured.get("", {}).items()}
    return found


def _text(section: Mapping[str, Any], measured: Measured, widths: Mapping[str, int]) -> str:
    """The profile as YAML. Of several measurements of one size the middle one counts."""
    components = {}
    for name, sizes in measured.items():
        about = {key: value for key, value in _about(section, name).items() if key not in _OWN}
        rounded = {size: float(f"{median(times):.4g}") for size, times in sorted(sizes.items())}
        wide = {"accelerators_per_process": widths[name]} if widths.get(name, 1) > 1 else {}
        components[name] = {"seconds": rounded.get(0, rounded), **wide, **about}
    kept = {key: value for key, value in section.items() if key not in ("iteration", "components")}
    return yaml.safe_dump(
        {SECTION: {**kept, "components": components}}, sort_keys=False, default_flow_style=None
    )
