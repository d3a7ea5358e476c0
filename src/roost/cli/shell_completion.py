"""Shell completion of what a job file holds: override keys with their present values, components and ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click
from click.shell_completion import CompletionItem

from roost.cli.chosen_plan import is_saved_plan
from roost.codes import CODES
from roost.config.document import JobFile, as_written
from roost.config.job import read_job
from roost.errors import Path, RoostError, dotted
from roost.planning.files import load_plan
from roost.secret_names import looks_secret

_MOST = 500
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """A file, and then overrides of it."""
    found = complete_override(context, parameter, incomplete) if _words(context) else []
    return found or [CompletionItem(incomplete, type="file")]


def complete_explained(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """A code, or a file, then a component, and then overrides."""
    given = _words(context)
    if len(given) == 1:
        return complete_component(context, parameter, incomplete)
    codes = [code for code in CODES if incomplete and code.startswith(incomplete) and not given]
    return [CompletionItem(code, help=CODES[code].title) for code in codes] or complete_job(
        context, parameter, incomplete
    )


def complete_override(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """`cluster.num_nodes=2`: the present value, to be changed. `~` offers keys to delete."""
    mark = incomplete[:1] if incomplete.startswith("~") else ""
    try:
        document = as_written(_job(context))
    except RoostError:
        return []
    offers = (
        f"{mark}{dotted(path)}" + f"={document.text(path, value)}" * (not mark)
        for path, value in _values((), document.data)
        if not any(isinstance(step, str) and looks_secret(step) for step in path) and "env_vars" not in path
    )
    found = [CompletionItem(offer) for offer in offers if offer.startswith(incomplete) and " " not in offer]
    return found[:_MOST]


def complete_component(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _components(context) if name.startswith(incomplete)]


def _words(context: click.Context) -> list[str]:
    """The arguments so far. They are in `args` while an option lacks its value."""
    given = context.params
    named = [*(given.get("words") or ()), *filter(None, (given.get("after"), given.get("before")))]
    return [str(word) for word in (*named, *context.args)]


def _job(context: click.Context) -> JobFile:
    return JobFile(next(iter(_words(context)), ""), context.params.get("config_dir"))


def _components(context: click.Context) -> list[str]:
    file = _job(context)
    try:
        if is_saved_plan(file):
            return list(load_plan(file.path).components)
        job, _ = read_job(as_written(file))
    except RoostError:
        return []
    return [*(job.layout.components if job.layout else ()), *job.rules]


def _values(path: Path, here: Any) -> Iterator[tuple[Path, Any]]:
    """The values in a section that are no sections or lists themselves."""
    entries = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else None
    if entries is None:
        yield path, here
        return
    for step, value in entries:
        yield from _values((*path, step), value)
