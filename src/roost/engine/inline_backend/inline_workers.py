"""The workers of a group inside this process. Ranks run one after the other, each in its own environment."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from roost.engine.backend import GroupOrder, ProcessFacts
from roost.engine.workers import environment
from roost.engine.workers.arguments import arguments_of, assembled, constructor_arguments
from roost.engine.workers.call_log import RAISED, RETURNED, CallLog
from roost.engine.workers.remote_errors import Origin, in_one_line
from roost.engine.workers.result import GroupResult
from roost.engine.workers.worker_context import _running_as, seat_of
from roost.errors import Finding, LaunchError
from roost.inventory.inventory import Inventory


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call on one rank: a value, or an error and the worker that raised it."""

    value: Any = None
    error: Exception | None = None
    origin: Origin | None = None
    seconds: float = 0.0


class InlineWorkers:
    def __init__(self, job: str, inventory: Inventory, order: GroupOrder, master: tuple[str, int]) -> None:
        self.name, self.running = order.name, True
        self._job, self._inventory, self.order, self._master = job, inventory, order, master
        self.seats = [
            seat_of(place, str(inventory.nodes[place.cluster_node_rank])) for place in order.placements
        ]
        self._settings: dict[int, environment.RankSettings] = {}
        self._workers: dict[int, Any] = {}
        self._logs: dict[int, CallLog] = {}

    def start_rank(self, rank: int) -> None:
        order, place = self.order, self.order.placements[rank]
        before = self._settings.get(rank)
        settings = self._settings[rank] = environment.rank_settings(
            self._inventory,
            self._job,
            order.name,
            place,
            world_size=len(order.placements),
            share=order.shares[rank] if order.shares else None,
            master_addr=self._master[0],
            master_port=self._master[1],
            device_names=place.visible_accelerators,
            node_paths=os.environ,
            generation=before.context.generation + 1 if before else 0,
        )
        self._logs[rank] = CallLog(order.worker.methods, slots=1_024, shared=False)
        try:
            with _as_rank(settings):
                args, kwargs = constructor_arguments(rank, order.worker.args, order.worker.kwargs)
                self._workers[rank] = order.worker.cls(*args, **kwargs)
        except Exception as error:
            raise LaunchError(
                Finding(
                    code="RE108",
                    what=f"{order.name} rank {rank} ({self.seats[rank]}) could not start",
                    why=in_one_line(error)[:500],
                )
            ) from error

    def submit(self, method: str, ranks: Sequence[int], args: Any, kwargs: Any) -> GroupResult:
        outcomes = []
        for position, rank in enumerate(ranks):
            own, named = arguments_of(position, len(ranks), args, kwargs, _outcomes)
            missing = next((one for one in [*own, *named.values()] if _failed(one)), None)
            if missing is not None:  # an argument's error is this call's, which does not run
                outcomes.append(missing)
                continue
            own, named = [_value(one) for one in own], {key: _value(one) for key, one in named.items()}
            outcomes.append(self._run(rank, method, *assembled(own, named)))
        return InlineResult(self.name, method, ranks, [self.seats[rank] for rank in ranks], outcomes)

    def _run(self, rank: int, method: str, args: Any, kwargs: Any) -> Outcome:
        log = self._logs[rank]
        number, began = log.begin(method), time.perf_counter()
        with _as_rank(self._settings[rank]):
            try:
                value = getattr(self._workers[rank], method)(*args, **kwargs)
                if inspect.isawaitable(value):
                    value = _finish(value)
            except Exception as error:
                log.end(number, method, RAISED)
                origin = Origin(self.name, rank, self.seats[rank], method)
                return Outcome(error=error, origin=origin, seconds=time.perf_counter() - began)
            except BaseException:
                log.end(number, method, RAISED)
                raise
        log.end(number, method, RETURNED)
        return Outcome(value=value, seconds=time.perf_counter() - began)

    def observe(self, timeout: float) -> list[ProcessFacts]:
        return [
            ProcessFacts(
                rank=rank,
                pid=os.getpid(),
                generation=settings.context.generation,
                node=settings.context.placement.cluster_node_rank,
                state="running" if rank in self._workers else "dead",
                calls=tuple(self._logs[rank].calls()),
            )
            for rank, settings in sorted(self._settings.items())
        ]

    def restart(self, ranks: Sequence[int], timeout: float) -> None:
        for rank in ranks:
            self.start_rank(rank)

    def end(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._workers.pop(rank, None)

    def stop(self) -> None:
        self.running = False
        self._workers.clear()


def _outcomes(result: GroupResult) -> Sequence[Any]:
    return result.outcomes if isinstance(result, InlineResult) else result.wait()


def _failed(argument: Any) -> bool:
    return isinstance(argument, Outcome) and argument.error is not None


def _value(argument: Any) -> Any:
    return argument.value if isinstance(argument, Outcome) else argument


def _finish(awaitable: Any) -> Any:
    """Run a coroutine to its end, also when the caller is itself inside an event loop."""

    async def body() -> Any:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(body())
    with ThreadPoolExecutor(1) as other:  # a running loop cannot be entered again
        return other.submit(asyncio.run, body()).result()


@contextmanager
def _as_rank(settings: environment.RankSettings) -> Iterator[None]:
    saved = dict(os.environ)
    os.environ.update(settings.variables)
    try:
        with _running_as(settings.context):
            yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


class InlineResult(GroupResult):
    """Everything has already run; a failure is raised when the caller waits, as on Ray."""

    def __init__(
        self, group: str, method: str, ranks: Sequence[int], seats: Sequence[str], outcomes: Sequence[Outcome]
    ) -> None:
        super().__init__(group, method, ranks, seats)
        self.outcomes = list(outcomes)

    def wait(self, timeout: float | None = None) -> list[Any]:
        return [value for _, value in self.as_completed()]

    @property
    def done(self) -> bool:
        return True

    def as_completed(self, timeout: float | None = None) -> Iterator[tuple[int, Any]]:
        others = sum(outcome.error is not None for outcome in self.outcomes) - 1
        for position, outcome in enumerate(self.outcomes):
            if outcome.error is not None:
                trace = "".join(traceback.format_exception(outcome.error))
                raise self._raised(position, outcome.error, trace, others, outcome.origin)
            yield self.ranks[position], outcome.value

    def durations(self, timeout: float | None = None) -> list[float]:
        return [outcome.seconds for outcome in self.outcomes]

    def __await__(self) -> Generator[Any, None, list[Any]]:
        async def now() -> list[Any]:
            return self.wait()

        return now().__await__()
