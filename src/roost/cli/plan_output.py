"""How a verb shows a plan: on stdout as text or JSON, and in files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from typing import Any, TextIO

import click

from roost.cli.ending import (
    code_for,
    emit,
    emit_json,
    is_ascii,
    refused,
    tell,
    tell_findings,
    wants_colour,
    width_of,
)
from roost.cli.options import all_of
from roost.errors import RoostError
from roost.planning.files import plan_text, write_file
from roost.planning.plan import Plan
from roost.planning.preflight import Holder
from roost.views.components import share_ranges
from roost.views.terminal import render_plan

plan_output_options = all_of(
    click.option("--svg", metavar="FILE", type=click.Path(), help="Save a picture of the plan."),
    click.option("--html", metavar="FILE", type=click.Path(), help="Save the plan as a page."),
    click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON."),
    click.option("--all", "show_all", is_flag=True, help="Show every node, with process ranks."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutput:
    """What the options say about how a plan is shown."""

    svg: str | None
    html: str | None
    as_json: bool
    show_all: bool
    output: str | None = None

    def check(self, *read: str | None) -> None:
        check_files(list(read), [self.output, self.svg, self.html])

    def show(self, config: str, planned: Callable[[], tuple[Plan, tuple[Holder, ...]]]) -> int:
        """Show the plan that a file gives, and return the exit code; `planned` may raise."""
        saved: list[str] = []
        try:
            found, held = planned()
            for path, text in self._files(found, held, found.job_file or os.path.basename(config)):  # noqa: PTH119
                write_file(path, text, private=path == self.output)
                saved.append(path)
        except RoostError as error:
            code = refused(error, config, self.as_json)
            _tell_saved(saved)
            return code
        if self.as_json:
            emit_json(in_full(found))
        else:
            emit(drawn(found, sys.stdout, self.show_all, held))
            if found.findings and sys.stderr.isatty():
                tell("")
        tell_findings(found.findings)
        _tell_saved(saved)
        return code_for(found.findings)

    def _files(self, planned: Plan, held: tuple[Holder, ...], job: str) -> list[tuple[str, str]]:
        files = [] if self.output is None else [(self.output, plan_text(planned))]
        for path, view in ((self.svg, "svg"), (self.html, "page")):
            if path is not None:
                render = getattr(import_module(f"roost.views.{view}"), f"render_{view}")
                text = render(planned, show_all=self.show_all, job=job, day=date.today(), held=held)
                files.append((path, text))
        return files


def _tell_saved(paths: list[str]) -> None:
    for path in paths:
        tell(f"saved to {path}")


def drawn(planned: Plan, stream: TextIO, show_all: bool = False, held: tuple[Holder, ...] = ()) -> str:
    """The plan as text for a stream."""
    return render_plan(
        planned,
        width=width_of(stream),
        colour=wants_colour(stream),
        ascii_only=is_ascii(stream),
        show_all=show_all,
        held=held,
    )


def in_full(planned: Plan) -> dict[str, Any]:
    """The saved form of a plan, with every placement, and the least and most a component is charged somewhere."""
    data, shares = planned.to_dict(), share_ranges(planned)
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
