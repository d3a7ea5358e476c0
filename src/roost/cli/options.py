"""Options that several verbs have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

profile_option = click.option(
    "--profile", required=True, metavar="FILE", type=click.Path(), help="What each component costs."
)
tail_option: Callable[[Command], Command] = click.option(
    "--tail",
    "tails",
    multiple=True,
    metavar="COMPONENT=SIGMA",
    help="Items of a component vary: the sigma of a log-normal distribution of their lengths.",
)


def all_of(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Several arguments and options as one decorator."""

    def decorate(command: Any) -> Any:
        for one in reversed(decorators):
            command = one(command)
        return command

    return decorate


MOST_SECONDS = 1e9  # 30 years: Python's waits refuse 300 and more, and shells know no `inf`


class _Seconds(click.FloatRange):
    """A range that refuses `nan` and what no wait can last."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if not found <= MOST_SECONDS:
            self.fail(f"{value!r} is not a number of seconds up to {MOST_SECONDS:.0f}.", param, ctx)
        return found


def seconds_option(
    name: str, default: float, help: str = "", least: float | None = None
) -> Callable[[Command], Command]:
    """A number of seconds: `least` or more, or else more than 0."""
    kind = _Seconds(min=0, min_open=True) if least is None else _Seconds(min=least)
    words = f"{help} Default: {default:g}.".lstrip()
    return click.option(name, type=kind, default=default, metavar="SECONDS", help=words)


def read_tails(written: Iterable[str], known: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in written:
        name, _, sigma = one.partition("=")
        try:
            found[name] = float(sigma)
        except ValueError:
            found[name] = -1.0
        if name not in known or not 0 <= found[name] <= 3:
            what = f"{one!r}: write COMPONENT=SIGMA, with a sigma from 0 to 3 and one of {', '.join(known)}"
            raise click.BadParameter(what, param_hint="--tail")
    return found
