"""The arguments of a group call, rank by rank: the same for all, one for each, or values of another call.

Values of another call are handles that a backend passes on without reading the values, such as Ray's references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roost.engine.workers.remote_errors import first_line
from roost.engine.workers.result import NOT_INSIDE, GroupResult
from roost.errors import WorkerError


class Scattered:
    """Values for the ranks of a call, in rank order: a list with one for each rank, or the result of another call."""

    __slots__ = ("result", "values")

    def __init__(self, values: Iterable[Any] | GroupResult) -> None:
        if not isinstance(values, (GroupResult, Iterable)):
            raise WorkerError(
                code="RE113",
                what=f"scatter takes a list of values or a result, not {type(values).__name__}",
                remedy="pass a value that all ranks get as it is, without scatter",
            )
        self.result = values if isinstance(values, GroupResult) else None
        self.values = [] if isinstance(values, GroupResult) else list(values)

    def __len__(self) -> int:
        return len(self.values) if self.result is None else len(self.result.ranks)

    def __repr__(self) -> str:
        return f"scatter({len(self)} values)"


def scatter(values: Iterable[Any] | GroupResult) -> Scattered:
    """Give each rank its own value: `group.step(roost.scatter([a, b, c]))`.

    The values of another call's result go directly from process to process: `trainer.train(roost.scatter(batch))`.
    With more values than ranks, each rank gets a list of values; with fewer, each value goes to several ranks.
    """
    return Scattered(values)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Stands in a call's arguments for one input, or for a list of inputs. The inputs follow after the arguments."""

    first: int
    count: int | None = None  # None: the one input itself


@dataclass(frozen=True, slots=True)
class Assembly:
    """The arguments of a call of which some are lists of inputs. The inputs follow one by one."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def filled(self, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        def fill(argument: Any) -> Any:
            if not isinstance(argument, Inputs):
                return argument
            if argument.count is None:
                return inputs[argument.first]
            return list(inputs[argument.first : argument.first + argument.count])

        return [fill(one) for one in self.args], {key: fill(one) for key, one in self.kwargs.items()}


def differ_by_rank(arguments: Iterable[Any]) -> bool:
    """Whether some argument has another value for each rank, or is the result of another call."""
    return any(isinstance(argument, (Scattered, GroupResult)) for argument in arguments)


def check_scattered(subject: str, arguments: Iterable[Any], ranks: int, noun: str = "ranks") -> None:
    """Raise if values cannot be given out to so many ranks, or if an argument holds a result inside another value."""
    for argument in arguments:
        _check_not_inside(subject, argument)
        if not isinstance(argument, Scattered) or len(argument) == ranks > 0:
            continue
        count = len(argument)
        divides = min(count, ranks) > 0 and max(count, ranks) % min(count, ranks) == 0
        if argument.result is not None and divides:
            continue
        raise WorkerError(
            code="RE113",
            what=f"{subject}: scatter has {count} values for {ranks} {noun}",
            why="" if argument.result is None else "one of the two counts must divide the other",
            remedy="give one value for each rank the call goes to",
        )


def cannot_send(subject: str, error: BaseException) -> WorkerError:
    """The error for a call that cannot be sent to the workers."""
    return WorkerError(
        code="RE113",
        what=f"{subject}: an argument cannot be sent to the workers",
        why=first_line(error),
        remedy="pass what the method takes, as plain data; make other things in the worker",
    )


def _check_not_inside(subject: str, argument: Any) -> None:
    """Look one level deep. By types, since a list may be long and most of its entries are alike."""
    if isinstance(argument, dict):
        inside: Iterable[Any] = argument.values()
    elif isinstance(argument, (list, tuple)):
        inside = argument
    elif isinstance(argument, Scattered):
        inside = argument.values
    else:
        return
    for kind in set(map(type, inside)):
        if issubclass(kind, (GroupResult, Scattered)):
            raise WorkerError(
                code="RE113",
                what=f"{subject}: an argument contains a {'scatter' if kind is Scattered else 'result'}",
                why=NOT_INSIDE,
                remedy="pass it as an argument of its own, or pass result.wait()",
            )


def arguments_of(
    position: int,
    ranks: int,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values_of: Callable[[GroupResult], Sequence[Any]],
    is_reference: Callable[[Any], bool] = lambda _: False,
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for one of the ranks. `values_of` returns the handles of a result's values.

    A backend fills in references only where they are arguments themselves, so those become inputs too.
    """
    inputs: list[Any] = []

    def passed(values: Sequence[Any], as_list: bool = True) -> Inputs:
        inputs.extend(values)
        return Inputs(len(inputs) - len(values), len(values) if as_list else None)

    def own(argument: Any) -> Any:
        if isinstance(argument, GroupResult):
            return passed(values_of(argument))
        if not isinstance(argument, Scattered) or argument.result is None:
            value = argument.values[position] if isinstance(argument, Scattered) else argument
            return passed([value], as_list=False) if is_reference(value) else value
        values = values_of(argument.result)
        if len(values) <= ranks:
            return passed([values[position // (ranks // len(values))]], as_list=False)
        each = len(values) // ranks
        return passed(values[position * each : (position + 1) * each])

    call = Assembly(tuple(own(argument) for argument in args), {key: own(one) for key, one in kwargs.items()})
    if any(isinstance(one, Inputs) and one.count is not None for one in [*call.args, *call.kwargs.values()]):
        return [call, *inputs], {}
    return call.filled(inputs)  # each input is an argument itself


def assembled(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Called in the worker: the arguments as the caller wrote them."""
    if args and type(args[0]) is Assembly:
        return args[0].filled(args[1:])
    return args, kwargs


def constructor_arguments(
    rank: int, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The constructor arguments of one rank: a scattered list holds one value for each rank."""

    def own(argument: Any) -> Any:
        return argument.values[rank] if isinstance(argument, Scattered) else argument

    return [own(argument) for argument in args], {key: own(argument) for key, argument in kwargs.items()}
