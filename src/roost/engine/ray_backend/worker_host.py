"""The process a worker lives in: a small actor that sets the environment before the user's code is loaded.

The actor's class has the worker's own method names, made from the names alone: the user's class is loaded only in
the process itself, once its environment is set. Ray's tools show the real names.
"""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import ray
from ray import cloudpickle

from roost.engine.processes.process_facts import Process, this_process
from roost.engine.workers.arguments import assembled, constructor_arguments
from roost.engine.workers.call_log import RAISED, RETURNED, CallLog
from roost.engine.workers.remote_errors import Origin, as_portable
from roost.engine.workers.worker_context import WorkerContext, _become_worker

_set_title = getattr(
    ray._raylet, "setproctitle", lambda title: None
)  # as Ray does before and after every call


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOrder:
    """What one rank is told. Values of the environment travel here, which Ray shows nowhere."""

    context: WorkerContext
    variables: Mapping[str, str]
    defaults: Mapping[str, str]
    module_paths: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"StartOrder({self.context.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReport:
    """What a started worker says of itself."""

    node_id: str
    process: Process
    call_log: int  # the descriptor of its log of calls
    visible: str | None
    seconds: float


class WorkerHost:
    """Runs one worker. Calls are answered one after the other."""

    _roost_methods: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str) -> None:
        self._roost_name = name
        self._roost_worker: Any = None

    def __repr__(self) -> str:  # Ray puts this before each log line
        return self._roost_name

    def _roost_start(self, order: StartOrder, program: bytes, visible_variable: str | None) -> StartReport:
        began = time.perf_counter()
        type(self).__name__ = self._roost_name  # Ray's title of an idle actor is the name of its class
        os.environ.update(order.variables)
        for name, value in order.defaults.items():
            os.environ.setdefault(name, value)
        # The driver finds its modules here; a node that has the same directory may look there last.
        sys.path += [path for path in order.module_paths if path not in sys.path and os.path.isdir(path)]  # noqa: PTH112
        context = order.context
        self._roost_seat = (context.group, context.placement.rank, context.seat)
        self._roost_calls = CallLog(self._roost_methods)
        try:
            cls, args, kwargs = cloudpickle.loads(program)
            _become_worker(context)
            mine, named = constructor_arguments(context.placement.rank, args, kwargs)
            self._roost_worker = cls(*mine, **named)
        except Exception as error:
            _raise_portable(error, self._roost_origin("__init__"))
        return StartReport(
            node_id=ray.get_runtime_context().get_node_id(),
            process=this_process(),
            call_log=self._roost_calls.fd,
            visible=os.environ.get(visible_variable) if visible_variable else None,
            seconds=time.perf_counter() - began,
        )

    def _roost_origin(self, method: str) -> Origin:
        return Origin(*self._roost_seat, method)

    def _roost_begin(self, method: str) -> int:
        _set_title(f"ray::{self._roost_name}.{method}")
        return self._roost_calls.begin(method, bytes.fromhex(ray.get_runtime_context().get_task_id()))

    def _roost_seconds(self, task: str) -> float | None:
        """How long a call took that has answered."""
        return self._roost_calls.seconds_of(bytes.fromhex(task))


class AsyncWorkerHost(WorkerHost):
    """For workers with `async def` methods: calls may overlap, as in any event loop."""

    async def _roost_start(  # type: ignore[override]
        self, order: StartOrder, program: bytes, visible_variable: str | None
    ) -> StartReport:
        return WorkerHost._roost_start(self, order, program, visible_variable)

    async def _roost_seconds(self, task: str) -> float | None:  # type: ignore[override]
        return WorkerHost._roost_seconds(self, task)


def actor_for(cls: type, methods: Sequence[str]) -> Any:
    """A Ray actor class with these methods, which hosts a worker of `cls`."""
    is_async = any(inspect.iscoroutinefunction(getattr(cls, name, None)) for name in methods)
    return _actor(cls.__name__, tuple(methods), is_async)


@lru_cache(maxsize=256)  # Ray sends every class it is given to all processes
def _actor(name: str, methods: tuple[str, ...], is_async: bool) -> Any:
    base, forward = (AsyncWorkerHost, _forwarded_async) if is_async else (WorkerHost, _forwarded)
    body: dict[str, Any] = {method: forward(method) for method in methods}
    return ray.remote(num_cpus=0)(type(name, (base,), {**body, "_roost_methods": methods}))


def _forwarded(method: str) -> Callable[..., Any]:
    def forward(self: WorkerHost, *args: Any, **kwargs: Any) -> Any:
        number = self._roost_begin(method)
        try:
            args, kwargs = assembled(args, kwargs)  # type: ignore[assignment]
            value = getattr(self._roost_worker, method)(*args, **kwargs)
        except BaseException as error:
            self._roost_calls.end(number, method, RAISED)
            _raise_portable(error, self._roost_origin(method))
        self._roost_calls.end(number, method, RETURNED)
        return value

    forward.__name__ = method
    return forward


def _forwarded_async(method: str) -> Callable[..., Any]:
    async def forward(self: AsyncWorkerHost, *args: Any, **kwargs: Any) -> Any:
        number = self._roost_begin(method)
        try:
            args, kwargs = assembled(args, kwargs)  # type: ignore[assignment]
            value = getattr(self._roost_worker, method)(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
        except BaseException as error:
            self._roost_calls.end(number, method, RAISED)
            _raise_portable(error, self._roost_origin(method))
        self._roost_calls.end(number, method, RETURNED)
        return value

    forward.__name__ = method
    return forward


def _raise_portable(error: BaseException, origin: Origin) -> None:
    """Raise the error, or a description of it where the caller could make no copy of it."""
    if not isinstance(error, Exception):
        raise error
    portable = as_portable(error, cloudpickle, origin)
    if portable is error:
        raise error
    raise portable from error
