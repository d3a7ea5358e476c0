"""The process a worker lives in: a small actor that sets the environment before the user's code is loaded."""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray import cloudpickle

from roost.engine.workers.remote_errors import as_portable
from roost.engine.workers.scatter import share_of
from roost.engine.workers.worker_context import WorkerContext, _become_worker


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
class WhereItIs:
    """What a started worker reports of itself."""

    node_id: str
    pid: int
    visible: str | None
    seconds: float


class Host:
    """Runs one worker. Calls are answered one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._worker: Any = None

    def __repr__(self) -> str:  # Ray puts this before each log line
        return self._name

    def start(self, order: StartOrder, program: bytes, visible_variable: str | None) -> WhereItIs:
        began = time.perf_counter()
        os.environ.update(order.variables)
        for name, value in order.defaults.items():
            os.environ.setdefault(name, value)
        # The driver finds its modules here; a node that has the same directory may look there last.
        sys.path += [path for path in order.module_paths if path not in sys.path and os.path.isdir(path)]  # noqa: PTH112
        rank = order.context.placement.rank
        with portable_errors():
            cls, args, kwargs = cloudpickle.loads(program)
            _become_worker(order.context)
            self._worker = cls(
                *[share_of(arg, rank) for arg in args],
                **{key: share_of(arg, rank) for key, arg in kwargs.items()},
            )
        return WhereItIs(
            node_id=ray.get_runtime_context().get_node_id(),
            pid=os.getpid(),
            visible=os.environ.get(visible_variable) if visible_variable else None,
            seconds=time.perf_counter() - began,
        )

    def call(self, method: str, *args: Any, **kwargs: Any) -> tuple[Any, float]:
        """The value, and the seconds it took."""
        began = time.perf_counter()
        with portable_errors():
            value = getattr(self._worker, method)(*args, **kwargs)
        return value, time.perf_counter() - began


class AsyncHost(Host):
    """For workers with `async def` methods: calls may overlap, as in any event loop."""

    async def start(self, order: StartOrder, program: bytes, visible_variable: str | None) -> WhereItIs:  # type: ignore[override]
        return Host.start(self, order, program, visible_variable)

    async def call(self, method: str, *args: Any, **kwargs: Any) -> tuple[Any, float]:  # type: ignore[override]
        began = time.perf_counter()
        with portable_errors():
            value = getattr(self._worker, method)(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
        return value, time.perf_counter() - began


class portable_errors:  # a `with` block; a class because it is on the path of every call
    """Exceptions of which the caller could make no copy are replaced by a description of them."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and (portable := as_portable(error, cloudpickle)) is not error:
            raise portable from error


def is_async(cls: type) -> bool:
    """Whether any of the class's public methods is `async def`."""
    return any(
        inspect.iscoroutinefunction(method)
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("__")
    )
