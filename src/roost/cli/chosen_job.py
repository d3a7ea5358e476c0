"""The arguments and options that say which job a verb reads."""

from __future__ import annotations

import functools
import os
from typing import Any

import click

from roost.cli.options import Command
from roost.cli.shell_completion import Completion, complete_job
from roost.config.document import JobFile

_config_dir = click.option(
    "--config-dir",
    metavar="DIR",
    type=click.Path(),
    help="Hydra: a directory of configs beside that of CONFIG.",
)
_config_name = click.option(
    "--config-name", metavar="NAME", help="Hydra: a config of that directory, in place of CONFIG."
)


def job_arguments(
    command: Command, metavar: str = "CONFIG [KEY=VALUE]...", complete: Completion = complete_job
) -> Command:
    """Arguments and options of a verb that reads one job: they become `config` and `overrides`."""

    @functools.wraps(command)
    def with_job(
        words: tuple[str, ...], config_dir: str | None, config_name: str | None, **given: Any
    ) -> Any:
        if config_name is None and not words:
            raise click.UsageError("Missing argument 'CONFIG'.")
        names, overrides = ((), words) if config_name is not None else (words[:1], words[1:])
        (config,) = job_files(names, config_dir, config_name)
        return command(config=config, overrides=overrides, **given)

    words = click.argument("words", nargs=-1, type=click.Path(), metavar=metavar, shell_complete=complete)
    return words(_config_dir(_config_name(with_job)))  # type: ignore[return-value]


def jobs_arguments(command: Command) -> Command:
    """Arguments and options of a verb that reads several jobs: they become `files` and `overrides`."""

    @functools.wraps(command)
    def with_jobs(
        words: tuple[str, ...], config_dir: str | None, config_name: str | None, **given: Any
    ) -> Any:
        deleting = tuple(one for one in words if one.startswith("~") and "/" not in one)
        overrides = tuple(one for one in words if ("=" in one or one in deleting) and not os.path.exists(one))  # noqa: PTH110
        names = tuple(one for one in words if one not in overrides)
        if not names and config_name is None:
            raise click.UsageError(
                "which files? Only overrides were given." if words else "Missing argument 'FILE...'."
            )
        return command(files=job_files(names, config_dir, config_name), overrides=overrides, **given)

    metavar = "FILE... [KEY=VALUE]..."
    words = click.argument("words", nargs=-1, type=click.Path(), metavar=metavar, shell_complete=complete_job)
    return words(_config_dir(_config_name(with_jobs)))  # type: ignore[return-value]


def job_files(names: tuple[str, ...], config_dir: str | None, config_name: str | None) -> tuple[JobFile, ...]:
    """The files of these names, and the one that `--config-name` names."""
    files = tuple(JobFile(name, config_dir) for name in names)
    if config_name is None:
        return files
    file = os.path.join(config_dir or "", config_name.removesuffix(".yaml") + ".yaml")  # noqa: PTH118
    return (*files, JobFile(file, config_dir or "."))
