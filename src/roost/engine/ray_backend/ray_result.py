"""The answers of workers on Ray."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray._private import worker as ray_worker

from roost.engine.connection.cluster_watch import STEP, check_cluster, check_head, patient_get, patient_wait
from roost.engine.job.open_jobs import order_against
from roost.engine.workers.remote_errors import Described, RemoteTraceback, first_line
from roost.engine.workers.result import Ending, GroupResult, seconds
from roost.errors import WorkerError

if TYPE_CHECKING:
    from roost.engine.ray_backend.ray_workers import RayWorkers
    from roost.engine.ray_backend.worker_host import StartReport

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_BIG = 100_000  # bytes from which one copy for all ranks is worth a trip to the object store


def once(argument: Any) -> Any:
    """A large argument goes to the object store once, not once per rank."""
    size = getattr(argument, "nbytes", None)
    if size is None and isinstance(argument, (bytes, bytearray, str)):
        size = len(argument)
    return ray.put(argument) if isinstance(size, int) and size > _BIG else argument


def cause_of(error: BaseException) -> BaseException | None:
    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else None
    return cause.rebuilt() if isinstance(cause, Described) else cause


def traced_cause(error: BaseException) -> BaseException | None:
    """The worker's exception, with the traceback of its process as its own cause."""
    cause = cause_of(error)
    if cause is not None:
        cause.__cause__ = RemoteTraceback(f"\n{remote_text(error)}")
    return cause


def remote_text(error: BaseException) -> str:
    return _ANSI.sub("", str(error)).strip()


# Answers that no caller will ask for: another rank of the same call failed first. Ray complains of an error that is
# never looked at, so `sweep` looks at these when they arrive.
_abandoned: list[Any] = []


def sweep() -> None:
    if _abandoned:
        ready, _abandoned[:] = ray.wait(_abandoned, num_returns=len(_abandoned), timeout=0)
        for ref in ready:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(ref)


def forget_abandoned() -> None:
    _abandoned.clear()


@dataclass(frozen=True, eq=False)
class KnownActor:
    """The worker an actor is."""

    workers: RayWorkers
    rank: int
    seat: str
    report: StartReport


class RayResult(GroupResult):
    """References of one call's values. Nothing runs here until the caller waits."""

    def __init__(
        self,
        group: str,
        method: str,
        ranks: Sequence[int],
        seats: Sequence[str],
        refs: Sequence[Any],
        handles: Sequence[Any] = (),
        who: Mapping[str, KnownActor] | None = None,
        job: str = "",
    ) -> None:
        super().__init__(group, method, ranks, seats)
        self._job = job
        self._connection = ray_worker.global_worker.node
        self.refs = list(refs)
        self._handles = handles
        self._who: Mapping[str, KnownActor] = {} if who is None else who  # by actor id

    def wait(self, timeout: float | None = None) -> list[Any]:
        timeout = seconds(timeout)
        self.check_connected()
        try:
            return patient_get(self.refs, timeout, self._job)
        except ray.exceptions.GetTimeoutError:
            _, pending = ray.wait(self.refs, num_returns=len(self.refs), timeout=0)
            late = [position for position, ref in enumerate(self.refs) if ref in set(pending)]
            raise self._late(late or [0], timeout or 0.0) from None
        except ray.exceptions.RayError as error:
            failure = self._failure(error)
            raise failure from failure.__cause__

    def check_connected(self) -> None:
        """Ray would start a cluster of its own when asked without one, and knows no answers of an earlier one."""
        if not ray.is_initialized() or ray_worker.global_worker.node is not self._connection:
            raise WorkerError(
                code="RE116",
                what=f"{self.group}.{self.method}: its answer is gone with the cluster, which was shut down",
                remedy="wait for results before cluster.shutdown(), and keep what wait() returns",
            )

    @property
    def done(self) -> bool:
        self.check_connected()
        ready, _ = ray.wait(self.refs, num_returns=len(self.refs), timeout=0, fetch_local=False)
        return len(ready) == len(self.refs)

    def as_completed(self, timeout: float | None = None) -> Iterator[tuple[int, Any]]:
        timeout = seconds(timeout)
        self.check_connected()
        deadline = None if timeout is None else time.monotonic() + timeout
        position_of = {ref: position for position, ref in enumerate(self.refs)}
        waiting = list(self.refs)
        while waiting:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, waiting = patient_wait(waiting, left, job=self._job)
            if not ready:
                raise self._late([position_of[ref] for ref in waiting], timeout or 0.0)
            for ref in ready:
                position = position_of[ref]
                try:
                    value = ray.get(ref)
                except ray.exceptions.RayError as error:
                    _abandoned.extend([*ready[ready.index(ref) + 1 :], *waiting])
                    failure = self._raised_inside(self._convert(position, error, 0))
                    raise failure from failure.__cause__
                yield self.ranks[position], value

    def durations(self, timeout: float | None = None) -> list[float]:
        """Asked of the workers, which keep the times of their calls."""
        self.wait(timeout)
        asked = [
            handle._roost_seconds.remote(ref.task_id().hex())
            for handle, ref in zip(self._handles, self.refs, strict=True)
        ]
        answer = RayResult(self.group, self.method, self.ranks, self._seats, asked, job=self._job).wait(
            timeout
        )
        return [float("nan") if one is None else one for one in answer]

    def __await__(self) -> Generator[Any, None, list[Any]]:
        return self._gathered().__await__()

    async def _gathered(self) -> list[Any]:
        self.check_connected()
        try:
            answers = asyncio.gather(*self.refs)
            while not answers.done():
                await asyncio.wait([answers], timeout=STEP)
                check_cluster(self._job)
            return list(answers.result())
        except (ray.exceptions.RayError, RuntimeError) as error:
            # Python makes a RuntimeError of a StopIteration that leaves an awaitable, and keeps it as the cause.
            first = error if isinstance(error, ray.exceptions.RayError) else error.__cause__
            if not isinstance(first, ray.exceptions.RayError):
                raise
            failure = self._raised_inside(self._failure(first))
            raise failure from failure.__cause__

    def _failure(self, first: BaseException) -> Exception:
        """The error of the lowest rank that failed so far."""
        failed: list[tuple[int, BaseException]] = []
        ready, _ = ray.wait(self.refs, num_returns=len(self.refs), timeout=0)
        done = set(ready)
        for position, ref in enumerate(self.refs):
            if ref in done:
                try:
                    ray.get(ref)
                except ray.exceptions.RayError as error:
                    failed.append((position, error))
        _abandoned.extend(ref for ref in self.refs if ref not in done)
        if not failed:
            return self._convert(0, first, 0)
        return self._convert(failed[0][0], failed[0][1], len(failed) - 1)

    def _convert(self, position: int, error: BaseException, others: int) -> Exception:
        cause = cause_of(error)
        if isinstance(error, ray.exceptions.RayTaskError) and not isinstance(
            cause, ray.exceptions.RayActorError
        ):
            return self._raised(position, cause, remote_text(error), others)
        check_head()
        if (taken_down := order_against(self._job)) is not None:
            return taken_down
        known = self._who.get(self._handles[position]._actor_id.hex()) if self._handles else None
        group, rank = self.group, self.ranks[position]
        if cause is not None:  # an argument is missing, since the worker that should have made it is dead
            known = self._who.get(str(getattr(cause, "actor_id", "")))
            group, rank = (known.workers.name, known.rank) if known else ("", -1)
        ending = (
            known.workers.ending_of(rank, known.report)
            if known
            else Ending(
                remedy=f"restart_ranks({rank}) starts it again, in the process that launched the group"
            )
        )
        said = first_line(error if cause is None else cause)
        if cause is None:
            return self._died(position, ending if ending.why else ending._replace(why=said), others)
        who = f"{group} rank {rank} ({known.seat})" if known else "a worker of another process"
        why = "; ".join(filter(None, [ending.why, said]))
        return self._source_died(who, group, rank, ending._replace(why=why))
