"""The arguments of a group call, rank by rank: the same for all, one for each, or values of another call.

Values of another call are named by what a backend can pass without looking at them, such as references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.engine.workers.result import GroupResult
from roost.engine.workers.scatter import Scattered
from roost.errors import Finding, WorkerError


@dataclass(frozen=True, slots=True)
class Inputs:
    """Stands in a call's arguments for a list of the inputs that are passed behind them."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Assembly:
    """The arguments of a call in which some are lists of inputs. The inputs are passed one by one, after it."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def filled(self, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        def fill(argument: Any) -> Any:
            if isinstance(argument, Inputs):
                return list(inputs[argument.first : argument.first + argument.count])
            return argument

        return [fill(one) for one in self.args], {key: fill(one) for key, one in self.kwargs.items()}


def differ_by_rank(arguments: Iterable[Any]) -> bool:
    """Whether any argument is not simply the same value for every rank."""
    return any(isinstance(argument, (Scattered, GroupResult)) for argument in arguments)


def check_scattered(subject: str, arguments: Iterable[Any], ranks: int, noun: str = "ranks") -> None:
    """Refuse values that cannot be given out to so many ranks."""
    for argument in arguments:
        if not isinstance(argument, Scattered) or len(argument) == ranks:
            continue
        count = len(argument)
        if argument.result is not None and (count % ranks == 0 or ranks % count == 0):
            continue
        raise WorkerError(
            Finding(
                code="RE113",
                what=f"{subject}: scatter has {count} values for {ranks} {noun}",
                why="" if argument.result is None else "one of the two counts must divide the other",
                remedy="give one value for each rank the call goes to",
            )
        )


def arguments_of(
    position: int,
    ranks: int,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values_of: Callable[[GroupResult], Sequence[Any]],
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for one of the ranks. `values_of` names the values of a result, as the backend passes them."""
    inputs: list[Any] = []

    def listed(values: Sequence[Any]) -> Inputs:
        inputs.extend(values)
        return Inputs(len(inputs) - len(values), len(values))

    def own(argument: Any) -> Any:
        if isinstance(argument, GroupResult):
            return listed(values_of(argument))
        if not isinstance(argument, Scattered):
            return argument
        if argument.result is None:
            return argument.values[position]
        values = values_of(argument.result)
        if len(values) <= ranks:
            return values[position // (ranks // len(values))]
        each = len(values) // ranks
        return listed(values[position * each : (position + 1) * each])

    mine = tuple(own(argument) for argument in args)
    named = {key: own(argument) for key, argument in kwargs.items()}
    if not inputs:
        return list(mine), named
    return [Assembly(mine, named), *inputs], {}


def assembled(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """In the worker: the arguments as the caller meant them."""
    if args and type(args[0]) is Assembly:
        return args[0].filled(args[1:])
    return args, kwargs


def constructor_arguments(
    rank: int, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """A worker's own constructor arguments: scattered lists hold one for each rank."""

    def own(argument: Any) -> Any:
        return argument.values[rank] if isinstance(argument, Scattered) else argument

    return [own(argument) for argument in args], {key: own(argument) for key, argument in kwargs.items()}
