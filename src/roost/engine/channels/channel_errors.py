"""The errors of channels: closed, not in time, or used wrongly."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from roost.config.fields import NAME, NAME_RULE
from roost.engine.channels.channel_values import (
    ChannelState,
    Drained,
    PutLate,
    PutRefused,
    TakeLate,
    Wanted,
)
from roost.errors import (
    ChannelClosed,
    ChannelError,
    ChannelTimeout,
    ClusterError,
    ConfigurationError,
    Finding,
    RoostError,
    counted,
    nearest,
    shown,
)


def not_put(name: str, decision: PutLate | PutRefused, count: int, timeout: float, note: str) -> ChannelError:
    done = _went_in(decision.done, count) if count > 1 else ""
    if isinstance(decision, PutRefused):
        error: ChannelError = ChannelClosed(
            code="RE124", what=f"channel {name!r} is closed: it takes no more items", why=done
        )
    else:
        holds = f"it holds {_contents(decision.state)} and has a capacity of {decision.state.capacity}"
        error = ChannelTimeout(
            code="RE123",
            what=f"channel {name!r}: waited {timeout:g} s for room for {counted(count - decision.done, 'item')}",
            why=_joined(done, holds, note or _takers(decision.state)),
            remedy="take items faster, wait longer, or give the channel a larger capacity",
        )
    error.done = decision.done
    return error


def put_in_part(error: RoostError, done: int, count: int) -> RoostError:
    """The error of a put, with the number of items that went in before."""
    first, *others = error.findings
    told = type(error)(replace(first, why=_joined(_went_in(done, count), first.why)), *others)
    told.done = done
    return told


def not_taken(
    name: str, decision: TakeLate | Drained, wanted: Wanted, timeout: float, note: str
) -> ChannelError:
    state, of_key = decision.state, "" if wanted.key is None else f" of key {shown(wanted.key)}"
    old = f"{counted(decision.too_old, 'item')} of an older version left out" if decision.too_old else ""
    hint = ""
    if state.held and wanted.key not in state.held:
        named = [key for key in state.held if isinstance(key, str)]
        hint = nearest(wanted.key, named) if wanted.key is not None and named else "name a key of these items"
    if isinstance(decision, Drained):
        rest = f"it holds {_contents(state)}" if state.held else ""
        return ChannelClosed(
            code="RE124",
            what=f"channel {name!r} is closed, and nothing{of_key} is left in it",
            why=_joined(old, rest),
            remedy=hint,
        )
    amount = f"items of weight {wanted.weight:g}" if wanted.count is None else counted(wanted.count, "item")
    return ChannelTimeout(
        code="RE123",
        what=f"channel {name!r}: waited {timeout:g} s for {amount}{of_key}",
        why=_joined(
            f"it holds {_contents(state)}{' and is closed' * state.closed}", old, note or _holders(state)
        ),
        remedy=hint or "wait longer, or see what the putting processes do",
    )


def cannot_travel(name: str, value: Any, why: str) -> ConfigurationError:
    return ConfigurationError(
        code="RC103",
        what=f"a value of type {type(value).__name__} cannot go through channel {name!r}",
        why=why[:500],
        remedy="put plain data, or arrays",
    )


def counted_as_ended(name: str) -> ChannelError:
    return ChannelError(
        code="RE126",
        what=f"channel {name!r} gives nothing to this process any more",
        why="Ray lost its node for a while, so what it had taken was handed out again",
        remedy="start this process anew",
    )


def other_capacity(name: str, asked: int, actual: int | None) -> ClusterError:
    return ClusterError(
        code="RE125",
        what=f"channel {name!r} has a capacity of {actual}, not {asked}",
        why="a process of this job has opened it before",
        remedy="open it with the same capacity everywhere, or with none where it does not matter",
    )


def check_name(name: Any, noun: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigurationError(
            code="RC105",
            what=f"{shown(name)} is not a name of a {noun}",
            remedy=NAME_RULE,
        )


def check_capacity(capacity: Any) -> None:
    if capacity is not None and not _is_int(capacity, least=1):
        _check(f"a capacity is a whole number from 1 on, or None, not {shown(capacity)}")


def checked_values(values: Any) -> list[Any]:
    if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
        _check(f"put_many takes a list of values, not {shown(values)}")
    return list(values)


def plain(value: Any) -> Any:
    """A key or version without its own class, such as an enum's: the channel's process may not have that class."""
    return str.__str__(value) if isinstance(value, str) else None if value is None else int(value)


def check_put(count: int, key: Any, weights: Any, version: Any, timeout: Any) -> None:
    if weights is not None and not isinstance(weights, Sequence):
        _check(f"weights are a list of numbers, not {shown(weights)}")
    given = count if weights is None else len(weights)
    _check(
        _key_problem(key),
        f"{given} weights for {counted(count, 'value')}" if given != count else None,
        *(
            f"a weight is a number above 0, not {shown(weight)}"
            for weight in weights or ()
            if not _is_number(weight) or weight <= 0
        ),
        None if version is None or _is_int(version) else f"a version is a whole number, not {shown(version)}",
        _timeout_problem(timeout),
    )


def check_take(count: Any, weight: Any, key: Any, max_staleness: Any, current: Any, timeout: Any) -> None:
    problems = [_key_problem(key), _timeout_problem(timeout)]
    if (count is None) == (weight is None):
        problems.append("a batch has a count or a weight, one of them")
    if count is not None and not _is_int(count, least=1):
        problems.append(f"count is a whole number from 1 on, not {shown(count)}")
    if weight is not None and (not _is_number(weight) or weight <= 0):
        problems.append(f"weight is a number above 0, not {shown(weight)}")
    if (max_staleness is None) != (current is None):
        problems.append("max_staleness and current are given together")
    if max_staleness is not None and not _is_int(max_staleness, least=0):
        problems.append(f"max_staleness is a whole number from 0 on, not {shown(max_staleness)}")
    if current is not None and not _is_int(current):
        problems.append(f"current is the version of the weights, a whole number, not {shown(current)}")
    _check(*problems)


def _check(*problems: str | None) -> None:
    found = [problem for problem in problems if problem]
    if found:
        raise ConfigurationError(*[Finding(code="RC104", what=what) for what in found])


def _key_problem(key: Any) -> str | None:
    fine = key is None or isinstance(key, str) or _is_int(key)
    return None if fine else f"a key is a text or a whole number, not {shown(key)}"


def _timeout_problem(timeout: Any) -> str | None:
    fine = _is_number(timeout) and timeout >= 0
    return None if fine else f"timeout is a number of seconds, not {shown(timeout)}"


def _is_int(value: Any, least: int | None = None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _went_in(done: int, count: int) -> str:
    return f"{done} of {counted(count, 'item')} went in before"


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _contents(state: ChannelState) -> str:
    if not state.held:
        return "no items"
    parts = [
        f"{count} {'without key' if key is None else f'of key {shown(key)}'}"
        for key, count in state.held.items()
    ]
    more = f" and of {len(parts) - 8} more keys" if len(parts) > 8 else ""
    return f"items: {', '.join(parts[:8])}{more}"


def _holders(state: ChannelState) -> str:
    parts = [f"{who} has taken {count} and not acknowledged" for who, count in state.taken.items()]
    return "; ".join(parts[:4])


def _takers(state: ChannelState) -> str:
    return _holders(state) or ("" if state.waiting_takes else "no process waits for items")
