"""The workers of a group inside this process. Ranks run one after the other, each in its own environment."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from roost.engine.backend import GroupOrder, ProcessFacts, RunningGroup
from roost.engine.events import Event, about_ranks
from roost.engine.launch_orders import aftermath_of_restart
from roost.engine.status import ProcessStatus, seen_status
from roost.engine.workers import environment
from roost.engine.workers.arguments import arguments_of, assembled, cannot_send, constructor_arguments
from roost.engine.workers.call_log import RAISED, RETURNED, CallLog
from roost.engine.workers.call_summary import CallFollower
from roost.engine.workers.remote_errors import Origin, in_one_line
from roost.engine.workers.result import (
    GENERATORS,
    WAS_RESTARTED,
    Ending,
    GroupResult,
    refuse_generator,
    seconds,
    stays_down,
)
from roost.engine.workers.worker import takes_nothing
from roost.engine.workers.worker_context import _running_as, seat_of
from roost.errors import LaunchError, WorkerDied
from roost.inventory.inventory import Inventory


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a call on one rank: a value, an error and the worker that raised it, or a rank that was ended."""

    value: Any = None
    error: BaseException | None = None
    ended: Ending | None = None  # of the worker, where it is dead
    origin: Origin | None = None
    seconds: float = 0.0


class InlineWorkers:
    def __init__(
        self,
        job: str,
        inventory: Inventory,
        order: GroupOrder,
        master: tuple[str, int],
        record: Callable[[Sequence[Event]], None],
    ) -> None:
        self.name, self.running, self._record = order.name, True, record
        self.handles: dict[int, Any] = {}  # nothing is an actor here
        self._job, self._inventory, self.order, self._master = job, inventory, order, master
        self.placements = order.placements
        self.seats = [
            seat_of(place, str(inventory.nodes[place.cluster_node_rank])) for place in order.placements
        ]
        self._settings: dict[int, environment.RankSettings] = {}
        self._environments: dict[int, dict[str, str]] = {}  # what each rank's process would have
        self._workers: dict[int, Any] = {}
        self._logs: dict[int, CallLog] = {}
        self._replaced: list[ProcessFacts] = []  # of ranks that were restarted

    def as_running(self) -> RunningGroup:
        return RunningGroup(methods=tuple(self.order.worker.methods), members=self)

    def start_rank(self, rank: int, aftermath: str) -> None:
        """Make the worker of a rank. `aftermath` says in the error what becomes of the others."""
        order, place = self.order, self.order.placements[rank]
        before = self._settings.get(rank)
        if before is not None:
            self._replaced.append(self._facts(rank, before))
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
        self._environments[rank] = {**os.environ, **settings.variables}
        self._logs[rank] = CallLog(order.worker.methods, slots=1_024, shared=False)
        try:
            with self._as_rank(rank):
                args, kwargs = constructor_arguments(rank, order.worker.args, order.worker.kwargs)
                self._workers[rank] = order.worker.cls(*args, **kwargs)
                if settings.context.generation:
                    self._workers[rank].on_restart(settings.context.generation)
        except (Exception, SystemExit) as error:
            self._workers.pop(rank, None)
            raise LaunchError(
                code="RE108",
                what=f"{order.name} rank {rank} ({self.seats[rank]}) could not start; {aftermath}",
                why=in_one_line(error)[:500],
            ) from error

    def processes(self) -> Mapping[int, Any]:
        return dict(self._workers)

    def submit(
        self,
        method: str,
        ranks: Sequence[int],
        args: Any,
        kwargs: Any,
        processes: Mapping[int, Any] | None = None,
    ) -> GroupResult:
        if (args or kwargs) and takes_nothing(self.order.worker.cls, method):
            try:
                inspect.Signature().bind(*args, **kwargs)
            except TypeError as error:
                raise cannot_send(f"{self.name}.{method}", error) from error
        outcomes = []
        for position, rank in enumerate(ranks):
            own, named = arguments_of(position, len(ranks), args, kwargs, _outcomes)
            missing = next((one for one in [*own, *named.values()] if _failed(one)), None)
            if missing is not None:  # an argument's error is this call's, which does not run
                outcomes.append(missing)
                continue
            own, named = [_value(one) for one in own], {key: _value(one) for key, one in named.items()}
            if processes is not None and processes.get(rank) is not self._workers.get(rank):
                origin = Origin(self.name, rank, self.seats[rank], method)
                outcomes.append(Outcome(origin=origin, ended=WAS_RESTARTED))
                continue
            outcomes.append(self._run(rank, method, *assembled(own, named)))
        return InlineResult(self.name, method, ranks, [self.seats[rank] for rank in ranks], outcomes)

    def _run(self, rank: int, method: str, args: Any, kwargs: Any) -> Outcome:
        origin = Origin(self.name, rank, self.seats[rank], method)
        if rank not in self._workers:
            return Outcome(origin=origin, ended=Ending(why="this rank was ended"))
        log = self._logs[rank]
        place, began = log.begin(method), time.perf_counter()
        with self._as_rank(rank):
            try:
                value = getattr(self._workers[rank], method)(*args, **kwargs)
                if inspect.isawaitable(value):
                    value = _finish(value)
                if isinstance(value, GENERATORS):
                    refuse_generator(method)
            except SystemExit as error:  # on Ray it ends the worker's process, and not the driver
                log.end(place, RAISED)
                del self._workers[rank]
                ended = Ending(why=f"it called sys.exit({error.code!r})")
                detail = f"{self.seats[rank]}; {ended.why}; restart_ranks({rank}) starts it again"
                self._record([about_ranks(self.name, [rank], self.placements, "reported", "crash", detail)])
                return Outcome(origin=origin, ended=ended)
            except KeyboardInterrupt:  # Ctrl-C, which is for the whole program
                log.end(place, RAISED)
                raise
            except BaseException as error:
                log.end(place, RAISED)
                return Outcome(error=error, origin=origin, seconds=time.perf_counter() - began)
        log.end(place, RETURNED)
        return Outcome(value=value, seconds=time.perf_counter() - began)

    @contextmanager
    def _as_rank(self, rank: int) -> Iterator[None]:
        """The environment of the rank, which keeps what the worker sets in it."""
        outside = dict(os.environ)
        _replace_environment(self._environments[rank])
        try:
            with _running_as(self._settings[rank].context):
                yield
        finally:
            self._environments[rank] = dict(os.environ)
            _replace_environment(outside)

    def observe(self, timeout: float) -> list[ProcessFacts]:
        current = [self._facts(rank, settings) for rank, settings in self._settings.items()]
        return sorted([*self._replaced, *current], key=lambda one: (one.rank, one.generation))

    def statuses(self) -> list[ProcessStatus]:
        """What each rank does now, or did last."""
        return [
            seen_status(
                self.order.component.name,
                self.placements[rank],
                group=self.name,
                state="running" if rank in self._workers else "dead",
                node=settings.context.placement.cluster_node_rank,
                pid=os.getpid(),
                generation=settings.context.generation,
                visible=",".join(settings.context.devices),
                calls=CallFollower(self._logs[rank].pages()).summary(time.time(), rank in self._workers),
            )
            for rank, settings in sorted(self._settings.items())
        ]

    def _facts(self, rank: int, settings: environment.RankSettings) -> ProcessFacts:
        return ProcessFacts(
            rank=rank,
            pid=os.getpid(),
            generation=settings.context.generation,
            node=settings.context.placement.cluster_node_rank,
            state="running" if rank in self._workers else "dead",
            calls=tuple(self._logs[rank].pages().calls()),
        )

    def wait_recovered(self, timeout: float) -> bool:
        if down := [rank for rank in self._settings if rank not in self._workers]:
            raise stays_down(self.name, down)  # nothing restarts by itself inline
        return True

    def restart(self, ranks: Sequence[int], timeout: float) -> None:
        self.end(ranks)
        try:
            for rank in ranks:
                self.start_rank(rank, aftermath_of_restart(ranks, len(self.placements)))
        except BaseException:
            self.end(ranks)
            raise

    def end(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._workers.pop(rank, None)

    def stop(self) -> None:
        self.running = False
        self._workers.clear()


def _outcomes(result: GroupResult) -> Sequence[Any]:
    return result.outcomes if isinstance(result, InlineResult) else result.wait()


def _failed(argument: Any) -> bool:
    return isinstance(argument, Outcome) and (argument.error is not None or argument.ended is not None)


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


def _replace_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


class InlineResult(GroupResult):
    """Everything has already run; a failure is raised when the caller waits, as on Ray."""

    def __init__(
        self, group: str, method: str, ranks: Sequence[int], seats: Sequence[str], outcomes: Sequence[Outcome]
    ) -> None:
        super().__init__(group, method, ranks, seats)
        self.outcomes = list(outcomes)

    def wait(self, timeout: float | None = None) -> list[Any]:
        seconds(timeout)
        if (failure := self._failure()) is not None:
            raise failure
        return [outcome.value for outcome in self.outcomes]

    @property
    def done(self) -> bool:
        return True

    def as_completed(self, timeout: float | None = None) -> Iterator[tuple[int, Any]]:
        seconds(timeout)
        for position, outcome in enumerate(self.outcomes):
            if (failure := self._failure_at(position)) is not None:
                raise self._raised_inside(failure)
            yield self.ranks[position], outcome.value

    def _failure(self) -> Exception | None:
        """The error of the lowest rank that failed."""
        return next(filter(None, map(self._failure_at, range(len(self.outcomes)))), None)

    def _failure_at(self, position: int) -> Exception | None:
        outcome = self.outcomes[position]
        if outcome.ended is None and outcome.error is None:
            return None
        others = sum(map(_failed, self.outcomes)) - 1
        if outcome.ended is not None:
            return self._ended(position, outcome.origin, outcome.ended, others)
        trace = "".join(traceback.format_exception(outcome.error))
        return self._raised(position, outcome.error, trace, others, outcome.origin)

    def _ended(self, position: int, origin: Origin | None, ending: Ending, others: int) -> WorkerDied:
        here = (self.group, self.ranks[position], self.method)
        if origin is None or (origin.group, origin.rank, origin.method) == here:
            return self._died(position, ending, others)
        return self._source_died(origin.who, origin.group, origin.rank, ending)

    def durations(self, timeout: float | None = None) -> list[float]:
        self.wait(timeout)
        return [outcome.seconds for outcome in self.outcomes]

    def __await__(self) -> Generator[Any, None, list[Any]]:
        async def now() -> list[Any]:
            if (failure := self._failure()) is not None:
                raise self._raised_inside(failure)
            return self.wait()

        return now().__await__()
