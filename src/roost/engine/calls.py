"""The answers of workers on Ray."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import ray

from roost.engine.workers.remote_errors import Described, first_line
from roost.engine.workers.result import GroupResult, seconds
from roost.errors import Finding, WorkerDied, WorkerError

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


# Answers nobody will ask for any more: another rank of the same call failed first. Ray complains of an error
# that is never looked at, so these are looked at when they arrive.
_abandoned: list[Any] = []


def sweep() -> None:
    if _abandoned:
        ready, _abandoned[:] = ray.wait(_abandoned, num_returns=len(_abandoned), timeout=0)
        for ref in ready:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(ref)


def forget_abandoned() -> None:
    _abandoned.clear()


class RayResult(GroupResult):
    """Refs of one call. Nothing runs here until somebody waits."""

    def __init__(
        self, group: str, method: str, ranks: Sequence[int], seats: Sequence[str], refs: Sequence[Any]
    ) -> None:
        super().__init__(group, method, ranks, seats)
        self._refs = list(refs)

    def wait(self, timeout: float | None = None) -> list[Any]:
        timeout = seconds(timeout)
        self._connected()
        try:
            return [value for value, _ in ray.get(self._refs, timeout=timeout)]
        except ray.exceptions.GetTimeoutError:
            _, pending = ray.wait(self._refs, num_returns=len(self._refs), timeout=0)
            late = [position for position, ref in enumerate(self._refs) if ref in set(pending)]
            raise self._late(late or [0], timeout or 0.0) from None
        except ray.exceptions.RayError as error:
            failure = self._failure(error)
            raise failure from failure.__cause__

    def _connected(self) -> None:
        """Ray would start a new cluster of its own when asked without one."""
        if not ray.is_initialized():
            raise WorkerError(
                Finding(
                    code="RE116",
                    what=f"{self.group}.{self.method}: the cluster was shut down before its answer was read",
                    remedy="wait for results before cluster.shutdown()",
                )
            )

    @property
    def done(self) -> bool:
        self._connected()
        ready, _ = ray.wait(self._refs, num_returns=len(self._refs), timeout=0, fetch_local=False)
        return len(ready) == len(self._refs)

    def as_completed(self, timeout: float | None = None) -> Iterator[tuple[int, Any]]:
        timeout = seconds(timeout)
        self._connected()
        deadline = None if timeout is None else time.monotonic() + timeout
        position_of = {ref: position for position, ref in enumerate(self._refs)}
        waiting = list(self._refs)
        while waiting:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, waiting = ray.wait(waiting, num_returns=1, timeout=left)
            if not ready:
                raise self._late([position_of[ref] for ref in waiting], timeout or 0.0)
            for ref in ready:
                position = position_of[ref]
                try:
                    value, _ = ray.get(ref)
                except ray.exceptions.RayError as error:
                    failure = self._convert(position, error, 0)
                    raise failure from failure.__cause__
                yield self.ranks[position], value

    def durations(self, timeout: float | None = None) -> list[float]:
        self.wait(timeout)
        return [seconds for _, seconds in ray.get(self._refs)]

    def __await__(self) -> Generator[Any, None, list[Any]]:
        return self._gathered().__await__()

    async def _gathered(self) -> list[Any]:
        self._connected()
        try:
            return [value for value, _ in await asyncio.gather(*self._refs)]
        except ray.exceptions.RayError as error:
            failure = self._failure(error)
            raise failure from failure.__cause__

    def _failure(self, first: BaseException) -> Exception:
        """The error of the lowest rank that failed so far."""
        failed: list[tuple[int, BaseException]] = []
        ready, _ = ray.wait(self._refs, num_returns=len(self._refs), timeout=0)
        done = set(ready)
        for position, ref in enumerate(self._refs):
            if ref in done:
                try:
                    ray.get(ref)
                except ray.exceptions.RayError as error:
                    failed.append((position, error))
        _abandoned.extend(ref for ref in self._refs if ref not in done)
        if not failed:
            return self._convert(0, first, 0)
        return self._convert(failed[0][0], failed[0][1], len(failed) - 1)

    def _convert(self, position: int, error: BaseException, others: int) -> Exception:
        if isinstance(error, ray.exceptions.RayTaskError):
            return self._raised(position, cause_of(error), _ANSI.sub("", str(error)), others)
        died = WorkerDied(
            Finding(
                code="RE111",
                what=f"{self._where(position)} died in or before {self.method}"
                + (f" ({others} other ranks failed too)" if others else ""),
                why=first_line(error),
                remedy="its log says what happened; launch the group again",
            )
        )
        died.group, died.rank = self.group, self.ranks[position]
        return died
