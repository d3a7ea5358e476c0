"""The option that says how much the lengths of a component's items vary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

tail_option: Callable[[Command], Command] = click.option(
    "--tail",
    "tails",
    multiple=True,
    metavar="COMPONENT=SIGMA",
    help="Items of a component vary: the sigma of a log-normal distribution of their lengths.",
)


def read_tails(written: Iterable[str], known: list[str]) -> dict[str, float]:
    return dict(_tail(one, known) for one in written)


def _tail(written: str, known: list[str]) -> tuple[str, float]:
    name, _, sigma = written.partition("=")
    try:
        value = float(sigma)
    except ValueError:
        value = -1.0
    if name not in known or not 0 <= value <= 3:
        raise click.BadParameter(
            f"{written!r}: write COMPONENT=SIGMA, with a sigma from 0 to 3 and one of {', '.join(known)}",
            param_hint="--tail",
        )
    return name, value
