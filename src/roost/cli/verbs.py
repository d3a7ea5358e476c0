"""The verbs of the command line. A verb's module is imported when the verb is used; none imports Ray at the top."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import click

from roost import __version__
from roost.cli.ending import guarded

VERBS = {
    "plan": "Show where every process of a job would run.",
    "validate": "List everything that is wrong with job files.",
    "explain": "Tell why a process sits where it does, or what a code means.",
    "diff": "Tell what is different between two plans.",
    "show": "Show a saved plan.",
    "profile": "Measure what each component of a job costs at several sizes.",
    "suggest": "Find the best placement of a job, with a proof.",
    "simulate": "Replay an arrangement item by item.",
    "launch": "Run a job that says what to run.",
    "status": "Show what running jobs do, planned against actual.",
    "logs": "Show what the processes of a running job wrote.",
    "stacks": "Show what the processes of a running job do now.",
    "down": "End a running job.",
    "up": "Write what starts Ray on Slurm, Kubernetes or hosts.",
    "doctor": "Tell what is wrong with this machine or a cluster.",
    "schema": "Print the JSON Schema of job files, for editors.",
    "embedded": "Keep a real Ray of several nodes running on this machine.",
}
EPILOG = """\b
Exit codes: 0 fine, 1 problems found, 2 wrong usage, 3 does not fit
            the cluster, 4 the cluster cannot be reached, 5 a launch
            or its driver failed, 6 differences, 70 a bug in roost,
            130 interrupted.
Completion: eval "$(_ROOST_COMPLETE=bash_source roost)"
            with zsh_source or fish_source for those shells.
"""


class Verbs(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = import_module(f"roost.cli.{name}").command
        return command

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args and not context.resilient_parsing:  # click before 8.2 would end with 0
            click.echo(context.get_help(), err=True)
            context.exit(2)
        return super().parse_args(context, args)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            close = get_close_matches(args[0], VERBS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(VERBS)}."
            context.fail(f"No such verb {args[0]!r}. {hint}")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=Verbs,
    epilog=EPILOG,
    subcommand_metavar="VERB CONFIG [KEY=VALUE]...",
    options_metavar="",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="roost %(version)s")
def roost() -> None:
    """Decide where the parts of a reinforcement-learning job run."""


def run(arguments: Sequence[str] | None) -> int:
    """Run the verb that the arguments name, and return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    return guarded(lambda: roost.main(words, prog_name="roost", standalone_mode=False), "--json" in words)
